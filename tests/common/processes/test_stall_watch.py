"""A rank that makes no progress is named with its last step, and its stacks are kept."""

import time
from pathlib import Path

import pytest

from project.common.files.layout import RunLayout
from project.common.processes.child import start_child
from project.common.processes.identity import Role
from project.common.processes.stall_watch import StallWatch
from project.common.processes.supervision import Supervisor
from tests.helpers.processes import handover_for, step_then_hang

pytestmark = pytest.mark.usefixtures("served")


def watch_ranks(
    run_dir: Path, *, steps: tuple[int, ...], start_method: str, limit_s: float, step_s: float = 1.1
) -> Supervisor:
    children = [
        start_child(
            step_then_hang,
            handover_for(start_method, run_dir, role=Role.RANK, rank=rank, world_size=len(steps)),
            args=(n_steps, step_s),
        )
        for rank, n_steps in enumerate(steps)
    ]
    supervisor = Supervisor(children, stall_watch=StallWatch(str(run_dir), limit_s=limit_s))
    supervisor.run()
    return supervisor


def test_names_the_rank_that_is_behind_and_ends_all(tmp_path: Path, start_method: str) -> None:
    began = time.monotonic()

    supervisor = watch_ranks(tmp_path, steps=(5, 3), start_method=start_method, limit_s=3.0)

    pid = supervisor.children[1].process.pid
    log = RunLayout(tmp_path).process_log("rank1", pid or 0)
    assert supervisor.stalled is not None
    assert supervisor.stalled.startswith(f"rank1 (pid {pid}) made no step for ")
    assert "while training, last step 3" in supervisor.stalled
    assert str(log) in supervisor.stalled
    assert "step_then_hang" in log.read_text()
    assert all(child.exit_code not in (None, 0) for child in supervisor.children)
    assert time.monotonic() - began < 60


def test_names_the_rank_that_is_behind_also_when_steps_are_quicker_than_records(tmp_path: Path) -> None:
    """Both made all their steps within the second in which no record is written again."""
    supervisor = watch_ranks(tmp_path, steps=(50, 49), start_method="forkserver", limit_s=3.0, step_s=0.001)

    assert supervisor.stalled is not None
    assert supervisor.stalled.startswith("rank1 ")
    assert "last step 49;" in supervisor.stalled


def test_says_nothing_while_steps_are_made(tmp_path: Path) -> None:
    supervisor = watch_ranks(tmp_path, steps=(-60,), start_method="forkserver", limit_s=4.0)

    assert supervisor.stalled is None
    assert supervisor.children[0].exit_code == 0


def test_preparing_may_take_longer_than_a_step(tmp_path: Path) -> None:
    supervisor = watch_ranks(tmp_path, steps=(0,), start_method="forkserver", limit_s=0.5)

    assert supervisor.stalled is None
    assert supervisor.children[0].exit_code == 0
