"""A directory manager, and children that build one thing together."""

import logging
import os
import time
from pathlib import Path

from project.common.files.once import create_once
from project.common.managers.directory import DirectoryManager


def build_slowly(target: Path) -> None:
    """Makes a folder of two files, and tells of itself beside it in `built-by` and `started`."""
    folder = target.parent
    with (folder / "built-by").open("a") as file:
        file.write(f"{os.getpid()}\n")
    target.mkdir()
    (target / "first").write_text("half")
    (folder / "started").touch()
    deadline = time.monotonic() + 60
    while not (folder / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    (target / "second").write_text("whole")


def make_with_others(path: Path) -> None:
    """Makes `path` unless another process does; its log goes to a file of its pid."""
    logging.basicConfig(filename=path.parent / f"log-{os.getpid()}", level=logging.INFO, format="%(message)s")
    create_once(path, build_slowly, timeout_s=60)


def manager(folder: Path, **changes: object) -> DirectoryManager:
    """One whose runs and cache lie in `folder`."""
    settings = {"name": "trial_run", "runs_dir": str(folder / "runs"), "cache_dir": str(folder / "cache")}
    return DirectoryManager(**settings | changes)  # type: ignore[arg-type]
