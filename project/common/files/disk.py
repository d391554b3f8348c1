"""Space on disk: asked before something large is written, and named when it runs out."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from project.common.errors import ProjectError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class DiskSpaceError(ProjectError):
    """Raised when a disk is full or would be; names the folder, what is free and what was to be written."""


def free_mb(folder: Path) -> float:
    """Megabytes that this user may still write below `folder`, which need not exist yet."""
    places = (folder, *folder.absolute().parents)
    existing = next(place for place in places if os.path.exists(place))  # Path.exists raises where it may not look
    return shutil.disk_usage(existing).free / 2**20


def require_free(folder: Path, needed_mb: float, why: str) -> None:
    """Raises `DiskSpaceError` unless `needed_mb` fit below `folder`; `why` says what for, as in `to save a model`."""
    free = free_mb(folder)
    if free < needed_mb:
        raise DiskSpaceError(f"{folder}: {free:,.0f} MB free, {needed_mb:,.0f} MB are needed {why}; {_cure(folder)}")


@contextmanager
def explain_full_disk(folder: Path, what: str) -> Iterator[None]:
    """Turns the system's `No space left on device` into a `DiskSpaceError` that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        text = f"{folder}: the disk is full while writing {what} ({free_mb(folder):,.0f} MB free); {_cure(folder)}"
        raise DiskSpaceError(text) from error


def is_writable(folder: Path) -> str | None:
    """None if files can be made in `folder`, which is made if missing; otherwise why not.

    A file is made and removed: permissions alone say little about read-only mounts, quotas and root.
    """
    probe = folder / f".write-test-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink(missing_ok=True)  # another thread may have asked at the same time
    except OSError as error:
        return error.strerror or str(error)
    return None


def _cure(folder: Path) -> str:
    return f"free some space on the disk of {folder.anchor or folder}, or choose another folder with paths.runs_dir"
