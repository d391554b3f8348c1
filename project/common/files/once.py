"""Things that exactly one process of a machine makes while the others wait, and that are whole or not there."""

import glob
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from project.common.errors import ProjectError
from project.common.files import atomic, disk
from project.common.processes import linux, stop

log = logging.getLogger(__name__)

POLL_S = 0.1
REMIND_S = 60.0
LOCKS = ".locks"
# Another machine on a shared disk may have its own lock: its half-made things are left alone for this long.
FOREIGN_STALE_S = 24 * 3600.0


class BuildTimeoutError(ProjectError):
    """Raised when another process did not finish what this one waits for."""


def create_once(path: Path, build: Callable[[Path], None], *, timeout_s: float, key: str = "paths.cache_dir") -> Path:
    """Returns `path`, a file or folder, after `build` has made it here or in another process.

    `build` gets a path beside it that does not exist yet, and makes a file or folder there; it is then moved into
    place and marked as finished, with the sizes of its files. A thing without a mark, or whose files were lost or
    shortened, is made again. The lock vanishes with the process that holds it.

    Args:
        path: What is to be there in the end.
        build: Runs in exactly one process of the machine; if it raises, the next one that asks tries again.
        timeout_s: How long to wait for another process.
        key: The setting that moves it to another disk.

    Raises:
        BuildTimeoutError: When another process takes longer.
        DiskSpaceError: When the disk is full.
    """
    if is_finished(path):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path, timeout_s=timeout_s), disk.explain_full_disk(path.parent, path.name, key=key):
        if not is_finished(path):
            _discard_broken(path)
            _build_and_move(path, build)
    return path


def is_finished(path: Path) -> bool:
    """Whether `path` was made to the end and has kept every file, each with its size. Added files do not matter."""
    try:
        sizes = json.loads(marker_of(path).read_text(encoding="utf-8"))["sizes"]
        return all((path / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False


def marker_of(path: Path) -> Path:
    """The file that says that `path` is finished."""
    return path.with_name(f"{path.name}.finished")


@contextmanager
def locked(path: Path, *, timeout_s: float) -> Iterator[None]:
    """Holds the lock of `path`, in a folder beside it. While waiting it says for whom, and obeys requests to stop."""
    from filelock import FileLock, Timeout

    # It stays: were it removed while a second process waits for it, a third one would get in beside that one.
    lock_path = path.parent / LOCKS / f"{path.name}.lock"
    lock_path.parent.mkdir(exist_ok=True)
    lock = FileLock(lock_path)
    started = time.monotonic()
    reminders = 0
    while True:
        try:
            lock.acquire(timeout=POLL_S)
            break
        except Timeout:
            waited = time.monotonic() - started
            stop.raise_if_stop_requested()
            if waited > timeout_s:
                raise BuildTimeoutError(_too_long(path, waited)) from None
            if waited >= reminders * REMIND_S:
                reminders += 1
                log.info("waiting for %s, which %s is making (%.0f s so far)", path, _builder(path), waited)
    try:
        yield
    finally:
        lock.release()


def _too_long(path: Path, waited: float) -> str:
    return (
        f"{path}: {_builder(path)} has been making it for more than {waited:.0f} s; "
        "end that process, or allow more with managers.directory.create_timeout_s"
    )


def _builder(path: Path) -> str:
    pids = [int(place.name.rpartition("-")[2]) for place in _half_made(path)]
    living = [pid for pid in pids if linux.process_start_time(pid)]
    return f"process {living[0]}" if living else "another process"


def _half_made(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f".{glob.escape(path.name)}{atomic.TEMPORARY_MARK}*"))


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}{atomic.TEMPORARY_MARK}{linux.host()}-{os.getpid()}")


def _discard_broken(path: Path) -> None:
    """Holding the lock: whatever this machine left half-made belongs to nobody that lives."""
    if path.exists() or path.is_symlink():
        log.warning("%s was not finished or has lost files; it is made again", path)
    marker_of(path).unlink(missing_ok=True)
    _remove(path)
    for place in _half_made(path):
        owner = place.name.rpartition(atomic.TEMPORARY_MARK)[2].rpartition("-")[0]
        if owner == linux.host() or time.time() - place.stat().st_mtime > FOREIGN_STALE_S:
            log.warning("removing %s, left behind by a process that ended while making it", place)
            _remove(place)


def _build_and_move(path: Path, build: Callable[[Path], None]) -> None:
    temporary = _temporary(path)
    try:
        build(temporary)
        if not temporary.exists():
            raise ProjectError(f"{path}: its builder {_name(build)} made nothing at {temporary}, the path it is given")
        sizes = {file.relative_to(temporary).as_posix(): _flush(file) for file in _files(temporary)}
        os.replace(temporary, path)
        atomic.write_json(marker_of(path), {"sizes": sizes})
    finally:
        _remove(temporary)


def _name(build: Callable[[Path], None]) -> str:
    return getattr(build, "__qualname__", repr(build))


def _files(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.is_file())


def _flush(file: Path) -> int:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
        return os.fstat(handle.fileno()).st_size


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
