"""A memory limit of the kernel's for one process, where this machine lets us set one."""

import contextlib
import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

LIMIT = 32 << 20
_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


def _limit_file(folder: Path) -> Path:
    return folder / ("memory.max" if folder.parent == _V2 else "memory.limit_in_bytes")


def _root() -> Path:
    return _V1 if _V1.is_dir() else _V2


@cache
def is_possible() -> bool:
    """Whether a group can be made, limited and removed here."""
    folder = _root() / f"chaos-try-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        return False
    try:
        _limit_file(folder).write_text(str(LIMIT))
    except OSError:
        return False
    finally:
        folder.rmdir()
    return True


@contextlib.contextmanager
def limited(pid: int, *, name: str) -> Iterator[None]:
    """What the process allocates from now on counts against the limit; the kernel kills it when that is reached."""
    folder = _root() / name
    folder.mkdir()
    try:
        _limit_file(folder).write_text(str(LIMIT))
        (folder / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        _remove(folder)


def _remove(folder: Path, limit_s: float = 5.0) -> None:
    """The kernel lets it go when its last process is reaped."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
