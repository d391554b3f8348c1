"""Semaphores and shared memory that a killed process could not remove: found by their owner's name, and removed."""

import contextlib
from pathlib import Path

from project.common.processes import linux, mp_internals, tracker
from project.common.processes.identity import ProcessKey

_SHM = Path("/dev/shm")
_PREFIX = "project"


def mark_as_own() -> None:
    """Lets semaphores that this process makes carry its name; those of the standard library are nobody's."""
    if linux.IS_LINUX:
        key = ProcessKey.own()
        mp_internals.name_semaphores(f"/{_PREFIX}-{key.pid}-{key.start_time}")


def remove_of(key: ProcessKey) -> list[str]:
    """Removes what a dead process of this tree left in shared memory; returns the names."""
    if not linux.IS_LINUX or not key.is_local() or key.is_alive():
        return []
    names = [path.name for path in _SHM.glob(f"sem.{_PREFIX}-{key.pid}-{key.start_time}-*")]
    for name in names:
        _unlink(name)
        tracker.forget_semaphore("/" + name.removeprefix("sem."))
    if linux.process_start_time(key.pid) is None:  # torch's names say the pid alone
        names += _remove_torch_segments(key.pid)
    return names


def remove_stale() -> list[str]:
    """Removes what processes of former trees left on this machine; returns the names. The living lose nothing."""
    removed = []
    for path in _SHM.glob(f"sem.{_PREFIX}-*-*-*") if linux.IS_LINUX else ():
        pid, start_time = path.name.split("-")[1:3]
        if pid.isdigit() and linux.process_start_time(int(pid)) != start_time:
            removed += [path.name, *_remove_torch_segments(int(pid))]
            _unlink(path.name)
    return removed


def _remove_torch_segments(pid: int) -> list[str]:
    names = [path.name for path in _SHM.glob(f"torch_{pid}_*")]
    for name in names:
        _unlink(name)
    return names


def _unlink(name: str) -> None:
    with contextlib.suppress(OSError):  # another user's, or removed meanwhile
        (_SHM / name).unlink()
