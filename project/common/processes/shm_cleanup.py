"""Semaphores and shared memory that a killed process could not remove: found by their owner's name, and removed."""

import contextlib
from pathlib import Path

from project.common.processes import linux, mp_internals, tracker, tree_folder
from project.common.processes.identity import ProcessKey

_SHM = Path("/dev/shm")
_PREFIX = "project"


def mark_as_own() -> None:
    """Lets semaphores that this process makes carry its and its main's name; the standard library's are nobody's."""
    if linux.IS_LINUX:
        key = ProcessKey.own()
        main = tree_folder.owner() or key
        mp_internals.name_semaphores(f"/{_PREFIX}-{key.pid}-{key.start_time}-{main.pid}-{main.start_time}")


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
    """Removes what processes of former trees left on this machine; returns the names.

    The living lose nothing. What died in a tree whose main lives is left to that one, whose resource tracker has to
    hear of it.
    """
    removed = []
    for path in _SHM.glob(f"sem.{_PREFIX}-*-*-*-*-*") if linux.IS_LINUX else ():
        pid, start_time, main_pid, main_start_time = path.name.split("-")[1:5]
        if not _lives(pid, start_time) and not _lives(main_pid, main_start_time):
            removed += [path.name, *_remove_torch_segments(int(pid))]
            _unlink(path.name)
    return removed


def _lives(pid: str, start_time: str) -> bool:
    return not pid.isdigit() or linux.process_start_time(int(pid)) == start_time


def _remove_torch_segments(pid: int) -> list[str]:
    names = [path.name for path in _SHM.glob(f"torch_{pid}_*")]
    for name in names:
        _unlink(name)
    return names


def _unlink(name: str) -> None:
    with contextlib.suppress(OSError):  # another user's, or removed meanwhile
        (_SHM / name).unlink()
