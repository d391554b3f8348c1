"""Sweeps of small tasks, as real commands and within the test's own process."""

import copy
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from project.common.files.layout import RunLayout
from project.common.process_registry import living
from tests.helpers.tree import ROOT, Tree, running

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

TASKS = "tests.helpers.failing_tasks"
GRID = "hydra/sweeper/sampler=grid"
BASIC = "hydra/sweeper=basic"


def overrides_of(folder: Path, task: str, *more: str) -> list[str]:
    """A sweep over a function of `tests.helpers.failing_tasks`, which writes below `folder` alone."""
    places = (f"paths.runs_dir={folder}/runs", f"paths.sweeps_dir={folder}/sweeps", f"paths.cache_dir={folder}/cache")
    quiet = ("managers/wandb=disabled", "logger=none", "managers.directory.min_free_mb=0")
    function = f"task.run._target_={TASKS}.{task}"
    return ["-m", "task=trivial", "name=x", function, *places, *quiet, *more]


def command(folder: Path, task: str, *more: str) -> list[str]:
    """The command line of such a sweep."""
    return ["python", str(ROOT / "train.py"), *overrides_of(folder, task, *more)]


@contextmanager
def started(folder: Path, task: str, *more: str, environ: Mapping[str, str] | None = None) -> Iterator[Tree]:
    """Starts such a sweep by `train.py`; its output goes to a file in `folder`."""
    allow = {"PROJECT_ALLOW": "tests.helpers.*"} | dict(environ or {})
    with running(command(folder, task, *more), output=folder / "output", environ=allow, cwd=folder) as tree:
        yield tree


def run_here(folder: Path, task: str, *more: str) -> int:
    """Runs such a sweep with this process as its main, whose process server is the session's; returns its exit code."""
    return main_here(overrides_of(folder, task, *more))


def main_here(words: list[str]) -> int:
    """Does what `train.py` does with these words, in this process; returns the exit code."""
    from hydra.core.plugins import Plugins
    from hydra.core.singleton import Singleton

    from project import train
    from project.common import told_exit

    Plugins.instance()  # what they bring is there from now on, and so in what is restored
    state = copy.deepcopy(Singleton.get_state())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROJECT_ALLOW", "tests.helpers.*")
        patch.setattr(sys, "argv", ["train.py", *words])
        patch.setattr(told_exit, "_has_begun", False)
        try:
            return train._run_hydra()
        finally:
            Singleton.set_state(state)


@dataclass(frozen=True)
class Sweep:
    """What a sweep left in its folder."""

    folder: Path

    @classmethod
    def of(cls, folder: Path) -> "Sweep":
        """The study's sweep below `folder`."""
        return cls(folder / "sweeps" / "x")

    def layouts(self) -> dict[int, RunLayout]:
        """Folders of trials, by number."""
        return {int(path.name): RunLayout(path) for path in self.folder.iterdir() if path.name.isdecimal()}

    def outcomes(self) -> dict[int, dict[str, Any]]:
        """How each trial ended, by number."""
        return {number: read_json(layout.outcome) for number, layout in sorted(self.layouts().items())}

    def log(self, number: int) -> str:
        """All that stands in a trial's logs."""
        return "".join(path.read_text() for path in self.layouts()[number].logs_dir.iterdir())

    def alive(self, number: int) -> list[str]:
        """Processes of a trial that live."""
        return [record.identity.label for record in living(self.layouts()[number].run_dir)]

    def states(self) -> list[str]:
        """The states in the study, by number."""
        return [trial.state.name for trial in self.trials()]

    def trials(self) -> "list[FrozenTrial]":
        """The study's trials, by number."""
        import optuna

        storage = optuna.storages.RDBStorage(f"sqlite:///{self.folder / 'study.db'}")
        try:
            (study_id,) = (study._study_id for study in storage.get_all_studies())
            return storage.get_all_trials(study_id)
        finally:
            storage.remove_session()
            storage.engine.dispose()


def read_json(path: Path) -> dict[str, Any]:
    """The content of a file."""
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def facts(folder: Path) -> list[dict[str, Any]]:
    """What `failing_tasks.note` was told, in the order in which it was."""
    found = [read_json(path) for path in folder.glob("facts-*.json")]
    return sorted(found, key=lambda it: it["began"])


def overlapping(times: list[dict[str, Any]]) -> int:
    """How many of the spans were open at once, at most."""
    return max(sum(other["began"] <= one["began"] < other["ended"] for other in times) for one in times)


def new_shared_memory(before: set[str]) -> set[str]:
    """What was added to /dev/shm."""
    return set(os.listdir("/dev/shm")) - before
