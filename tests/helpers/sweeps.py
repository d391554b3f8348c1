"""Whole sweeps by the command line, and what is left of them."""

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial

from project.common.files.layout import RunLayout
from project.common.process_registry import read_run
from project.sweeps.shown.stored_study import stored_study
from project.sweeps.study.counts import Counts, count
from tests.helpers import sweep_tasks, training
from tests.helpers.runs import START_S, started, tiny, trivial
from tests.helpers.sweep_runs import main_here
from tests.helpers.tree import Tree
from tests.helpers.waiting import until

TASK = (f"task.run._target_={sweep_tasks.__name__}.run", "+task.run.given=null", "+task.run.returns=null")


def trivial_sweep(folder: Path, *overrides: str) -> list[str]:
    """Command line of a sweep of `sweep_tasks.run`; `sweeps/trivial` lies in `folder`, where it is started."""
    return [*trivial(folder, *TASK, *overrides), "-m"]


def tiny_sweep(folder: Path, *overrides: str) -> list[str]:
    """Command line of a sweep of tiny trainings: `sweeps/tiny`."""
    return [*tiny(folder, *overrides), "-m"]


def sweep_dir(folder: Path) -> Path:
    """The one study's folder below `folder`."""
    (found,) = (folder / "sweeps").iterdir()
    return found


def trials(folder: Path) -> list[FrozenTrial]:
    """The study's trials, as they are stored."""
    with stored_study(sweep_dir(folder)) as (study, _):
        return study.get_trials()


def counts(folder: Path) -> Counts:
    """How many trials of each kind there are."""
    return count(trials(folder))


def states(folder: Path) -> dict[str, int]:
    """How many trials are in which of Optuna's states."""
    return dict(Counter(trial.state.name for trial in trials(folder)))


def ended(
    command: list[str], folder: Path, *, limit_s: float = 120.0, environ: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Exit code and output of a command that is left alone, and leaves nothing."""
    with started(command, folder, environ=environ) as tree:
        code = tree.wait(limit_s)
        tree.assert_nothing_left()
        return code, tree.text


def ended_here(command: list[str], folder: Path) -> tuple[int, str]:
    """As `ended`, with this process as main, whose process server is the session's: no start of an interpreter."""
    streams = {1: os.dup(1), 2: os.dup(2)}
    with open(folder / "output", "w", buffering=1) as output, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "stdout", output)
        patch.setattr(sys, "stderr", output)
        try:
            for number in streams:
                os.dup2(output.fileno(), number)
            code = main_here(command[2:])
        finally:
            for number, stream in streams.items():
                os.dup2(stream, number)
                os.close(stream)
    return code, (folder / "output").read_text()


def wait_for_trials(tree: Tree, folder: Path, *numbers: int, step: int = 1) -> None:
    """Returns when every rank of these trials has done `step` steps."""
    for number in numbers:
        until(
            lambda number=number: _has_done(tree, folder / "sweeps", number, step),  # type: ignore[misc]
            START_S,
            what=f"step {step} of trial {number}\n{tree.text}",
        )


def _has_done(tree: Tree, sweeps: Path, number: int, step: int) -> bool:
    assert tree.popen.poll() is None, f"it ended before step {step} of trial {number}:\n{tree.text}"
    found = [record for path in sweeps.glob(f"*/{number}") for record in read_run(path) if record.key.is_alive()]
    wanted = max((record.identity.world_size for record in found), default=1)
    steps = [(record.heartbeat or {}).get("step") or 0 for record in found if record.identity.rank is not None]
    return len(steps) == wanted and min(steps) >= step


def checksums(folder: Path) -> dict[str, str]:
    """Of every file below a trial's folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def trial_folders(folder: Path) -> dict[int, RunLayout]:
    """By number."""
    return {int(path.name): RunLayout(path) for path in sweep_dir(folder).iterdir() if path.name.isdigit()}


def is_whole(layout: RunLayout, *, status: str = "completed") -> bool:
    """Whether a trial's folder has all that one that ended so leaves."""
    outcome = json.loads(layout.outcome.read_text())
    needed = (layout.config, layout.overrides, layout.metrics, layout.metrics_history, layout.run_log)
    return outcome["status"] == status and all(path.is_file() for path in needed)


def history(layout: RunLayout) -> list[dict[str, Any]]:
    """Every logged line, without what clocks and memory say."""
    return training.history(layout)
