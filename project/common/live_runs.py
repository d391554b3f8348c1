"""Which runs of this user are alive on this machine: a pointer file for each under the user's state folder."""

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from project.common.files.atomic import write_json
from project.common.process_registry import living
from project.common.processes.identity import ProcessKey

log = logging.getLogger(__name__)


def state_dir() -> Path:
    """The user's state folder for this project, where live runs are pointed to."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "project"


def point_to_run(run_dir: str, key: ProcessKey) -> Path | None:
    """Leaves a pointer to a live run; the caller removes it at the end. None when the state folder is not writable."""
    folder = state_dir() / "runs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{key.pid}-{key.start_time}-{abs(hash(run_dir)) % 10**6}.json"
        write_json(path, {"run_dir": run_dir, "main": vars(key)}, durable=False)
    except OSError as error:
        log.warning("%s is not writable (%s); `python -m project.ps` will not list this run", folder, error)
        return None
    return path


def remove_stale_pointers() -> None:
    """Removes pointers that killed main processes left, but for runs of which something still lives."""
    for run in pointed_runs():
        if run.main.is_local() and not run.main.is_alive() and not _is_anything_left(run.run_dir):
            run.pointer.unlink(missing_ok=True)


def _is_anything_left(run_dir: Path) -> bool:
    return any(living(folder) for folder in with_jobs(run_dir))


@dataclass(frozen=True, kw_only=True)
class LiveRun:
    """A run that was pointed to.

    Args:
        run_dir: Its folder.
        main: Key of its main process.
        pointer: The pointer file.
    """

    run_dir: Path
    main: ProcessKey
    pointer: Path


def with_jobs(run_dir: Path) -> list[Path]:
    """The run's folder, and in a sweep those of its jobs of which something lives, by number."""
    jobs = {path.parent for path in run_dir.glob("*/processes")}
    return [run_dir, *sorted((job for job in jobs if living(job)), key=lambda job: (len(job.name), job.name))]


def pointed_runs() -> list[LiveRun]:
    """Every run that is pointed to, also those whose main process is gone."""
    runs = []
    for pointer in sorted((state_dir() / "runs").glob("*.json")):
        try:
            data = json.loads(pointer.read_text())
            runs.append(LiveRun(run_dir=Path(data["run_dir"]), main=ProcessKey(**data["main"]), pointer=pointer))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return runs
