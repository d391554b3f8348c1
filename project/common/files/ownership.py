"""One main per run folder: a lock that the kernel drops when its owner ends, however it ends."""

import contextlib
import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class FolderLock:
    """Holds `path` locked from `acquire` to `release`; the file is gone afterwards.

    Args:
        path: The lock file, in the folder that is owned.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._fd = path, -1

    def acquire(self) -> bool:
        """True when this process owns the folder now, False when another one does."""
        while True:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if not _lock(fd):
                os.close(fd)
                return False
            if self._is_current(fd):
                self._fd = fd
                return True
            os.close(fd)

    def _is_current(self, fd: int) -> bool:
        """False when the former owner removed the file between our opening and our locking it."""
        try:
            return os.fstat(fd).st_ino == os.stat(self._path).st_ino
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Gives the folder up; may be called again."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # the folder may have been removed or replaced
                self._path.unlink()
            os.close(self._fd)
            self._fd = -1


def _lock(fd: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
