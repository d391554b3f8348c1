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


def size_text(mb: float) -> str:
    """Megabytes for people, in kilobytes where there is less than one."""
    return f"{mb * 1024:,.0f} KB" if mb < 1 else f"{mb:,.{int(mb < 10)}f} MB"


def require_free(folder: Path, needed_mb: float, why: str) -> None:
    """Raises `DiskSpaceError` unless `needed_mb` fit below `folder`; `why` says what for, as in `to save a model`."""
    free = free_mb(folder)
    if free < needed_mb:
        cure = _cure(folder, "paths.runs_dir")
        raise DiskSpaceError(f"{folder}: {size_text(free)} free, {size_text(needed_mb)} are needed {why}; {cure}")


@contextmanager
def explain_full_disk(folder: Path, what: str, *, key: str = "paths.runs_dir") -> Iterator[None]:
    """Turns the system's `No space left on device` into a `DiskSpaceError` that names the folder.

    Args:
        key: The setting that moves the folder elsewhere.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        free = size_text(free_mb(folder))
        text = f"{folder}: the disk is full while writing {what} ({free} free); {_cure(folder, key)}"
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


def _cure(folder: Path, key: str) -> str:
    return f"free some space on the disk at {mount_of(folder)}, or choose another folder with {key}"


def mount_of(folder: Path) -> Path:
    """Where the disk that holds `folder`, which need not exist yet, is mounted."""
    place = folder.resolve()
    return next((above for above in (place, *place.parents) if os.path.ismount(above)), Path(place.anchor))
