"""Whole runs by the command line: tiny trainings, seen from outside."""

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from lightning.pytorch.callbacks import Callback

from project.common.files.layout import RunLayout
from project.common.process_registry import ProcessRecord, read_run
from tests.helpers.training import ROOT, TINY, with_task, write_data
from tests.helpers.tree import Tree, running
from tests.helpers.waiting import until

PACE = "PACE_S"
BREAKPOINT = f"+callbacks.stop._target_={__name__}.Breakpoint"
START_S = 90.0  # a cold start under spawn on a busy machine


class Pace(Callback):
    """Makes each training batch take as many seconds as the environment says."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        time.sleep(float(os.environ.get(PACE, "0")))


def tiny(folder: Path, *overrides: str) -> list[str]:
    """Command line of a training of a few dozen steps on data in `folder`; its runs lie there too."""
    files = ",".join(f"{split}:'{path}'" for split, path in write_data(folder).items())
    places = (f"paths.runs_dir={folder}/runs", f"paths.cache_dir={folder}/cache", f"task.data.files={{{files}}}")
    pace = f"+callbacks.pace._target_={__name__}.Pace"
    saving = "callbacks.checkpoint.every_n_steps=1"
    words = with_task([*TINY, *places, pace, saving, "logger=none", *overrides])
    return ["python", str(ROOT / "train.py"), *words]


def trivial(folder: Path, *overrides: str) -> list[str]:
    """Command line of a run that trains no model."""
    places = (f"paths.runs_dir={folder}/runs", f"paths.cache_dir={folder}/cache")
    quiet = ("managers/wandb=disabled", "logger=none", "managers.directory.min_free_mb=0")
    return ["python", str(ROOT / "train.py"), "+experiment=trivial", *places, *quiet, *overrides]


@contextmanager
def started(command: list[str], folder: Path, *, environ: Mapping[str, str] | None = None) -> Iterator[Tree]:
    """Starts a command whose output goes to a file in `folder`."""
    allow = {"PROJECT_ALLOW": "tests.helpers.*"}
    with running(command, output=folder / "output", environ=allow | dict(environ or {}), cwd=folder) as tree:
        yield tree


def run_folder(folder: Path) -> RunLayout:
    """The one run below `folder`."""
    (found,) = (folder / "runs").glob("*/*")
    return RunLayout(found)


def wait_for_step(tree: Tree, folder: Path, step: int = 1) -> dict[str, ProcessRecord]:
    """Returns the living processes' records, by label, when every rank has done `step` steps."""

    def ready() -> dict[str, ProcessRecord] | None:
        assert tree.popen.poll() is None, f"it ended before step {step}:\n{tree.text}"
        folders = list((folder / "runs").glob("*/*"))
        records = {r.identity.label: r for r in read_run(folders[0]) if r.key.is_alive()} if folders else {}
        ranks = [record for label, record in records.items() if label.startswith("rank") and "-" not in label]
        has_come = [
            record.state == "training" and ((record.heartbeat or {}).get("step") or 0) >= step for record in ranks
        ]
        return records if len(has_come) == max(1, _n_ranks(records)) and all(has_come) else None

    return until(ready, START_S, what=f"step {step} of every rank\n{tree.text}")


def _n_ranks(records: Mapping[str, ProcessRecord]) -> int:
    return max((record.identity.world_size for record in records.values()), default=1)


def outcome(layout: RunLayout) -> dict[str, Any]:
    """What the run says about its end."""
    content: dict[str, Any] = json.loads(layout.outcome.read_text())
    return content


class Breakpoint(Callback):
    """Stops in the debugger once, when training begins."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        breakpoint()


def say_where() -> None:
    """What `breakpoint()` calls when PYTHONBREAKPOINT names it."""
    below = [process.name() for process in psutil.Process().children()]
    print(f"breakpoint in {os.getpid()} with {below} below", flush=True)


def fail_twice(*, folder: str, report: Any) -> dict[str, float]:
    """A task that succeeds at the third try, counted in `folder`."""
    tries = 1 + len(list(Path(folder).glob("try-*")))
    (Path(folder) / f"try-{tries}").touch()
    report(tries, {})
    if tries < 3:
        raise OSError(f"try {tries}")
    return {"tries": float(tries)}


def lose_folder(*, folder: str, report: Any) -> dict[str, float]:
    """A task whose run folder is replaced by an empty one when it has nearly ended."""
    (run_dir,) = Path(folder).glob("*/*")
    shutil.rmtree(run_dir)
    run_dir.mkdir()
    return {}


def block_outcome(*, folder: str, report: Any) -> dict[str, float]:
    """A task that puts a folder where the outcome would be written."""
    (run_dir,) = Path(folder).glob("*/*")
    RunLayout(run_dir).outcome.mkdir()
    return {}
