"""Which of several failed ranks the others failed for."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from project.common.files.atomic import write_json
from project.common.files.layout import RunLayout
from project.common.process_registry import ProcessRecord
from project.common.processes.identity import Identity, ProcessKey, Role
from project.common.processes.outcome import Outcome, Status
from project.common.processes.stop import PASSED_ON
from project.training.ranks import the_cause

CRASHED = Outcome(status=Status.CRASHED, exit_code=1, cause="RuntimeError: of its own")


def rank(
    folder: Path, number: int, outcome: Outcome | None, *, closed_at: float = 0.0, was_killed: bool = False
) -> Any:
    """A rank that has ended, as its trial sees it, with a record that says when it began to close."""
    identity = Identity(role=Role.RANK, run_dir=str(folder), rank=number, world_size=2)
    pid = os.getpid() + number
    key = ProcessKey(**(vars(ProcessKey.own()) | {"pid": pid}))
    path = RunLayout(folder).process_record(identity.label, pid)
    path.parent.mkdir(exist_ok=True)
    history = [("training", 1.0), ("closing", closed_at)]
    write_json(path, ProcessRecord(key=key, identity=identity, parent_pid=1, started=0.0, history=history).as_dict())
    return SimpleNamespace(identity=identity, process=SimpleNamespace(pid=pid), outcome=outcome, was_killed=was_killed)


def cause_of(first: Any, *others: Any) -> Any:
    return the_cause(SimpleNamespace(first_failure=first, children=[first, *others]))  # type: ignore[arg-type]


def test_it_is_the_one_that_closed_first_however_soon_the_others_ended(tmp_path: Path) -> None:
    """A rank with a MemoryError took longer to close than the other, whose lost connection stood for the run's end."""
    consequence = rank(tmp_path, 0, CRASHED, closed_at=5.1)
    cause = rank(tmp_path, 1, CRASHED, closed_at=5.0)

    assert cause_of(consequence, cause) is cause


@pytest.mark.parametrize(("was_killed", "expected"), [(False, 1), (True, 0)])
def test_it_is_the_one_that_was_killed_unless_by_us(tmp_path: Path, was_killed: bool, expected: int) -> None:
    ranks = [rank(tmp_path, 0, CRASHED, closed_at=5.0), rank(tmp_path, 1, None, was_killed=was_killed)]

    assert cause_of(*ranks) is ranks[expected]


def test_it_is_the_one_that_was_asked_to_stop(tmp_path: Path) -> None:
    asked, told = (
        rank(tmp_path, n, Outcome(status=Status.INTERRUPTED, exit_code=143, cause=cause))
        for n, cause in enumerate(("rank0 received SIGTERM", PASSED_ON))
    )

    assert cause_of(told, asked) is asked


def test_there_is_none_when_all_is_well(tmp_path: Path) -> None:
    assert cause_of(None) is None
