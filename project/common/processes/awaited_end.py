"""How the end of a started process is learned: from the kernel, and by several threads at once."""

import array
import os
import threading
import weakref
from collections.abc import Callable
from multiprocessing import connection, util
from typing import Any


def use_pidfd(started: Any) -> None:
    """Lets a spawned process's sentinel be the kernel's word for its end.

    The standard one is a pipe that whatever the process forks holds open too, so that its end would go unnoticed.
    """
    pidfd = os.pidfd_open(started.pid)
    started.sentinel, close_pipes = pidfd, started.finalizer
    started.finalizer = util.Finalize(started, _close_all, args=(pidfd, close_pipes))


def _close_all(pidfd: int, close_pipes: Callable[[], Any]) -> None:
    os.close(pidfd)
    close_pipes()


class Poll:
    """`poll` of a started process, one thread at a time: of two at once the standard one tells one of them nonsense.

    Args:
        started: What `multiprocessing` calls its Popen.
        server_lost: Whether it ended without a word, because the process server, which tells the ends, is gone.
    """

    def __init__(self, started: Any) -> None:
        self._started, self._poll, self._lock = weakref.ref(started), type(started).poll, threading.Lock()
        self._told_by_server = started.method == "forkserver"
        self.server_lost = False

    def __call__(self, flag: int = getattr(os, "WNOHANG", 1)) -> int | None:
        started = self._started()
        assert started is not None, "it is asked by itself"
        if started.returncode is None and flag == 0:
            connection.wait([started.sentinel])  # long, so outside the lock; what is left after it is short
        with self._lock:
            if self._told_by_server and started.returncode is None:
                if not connection.wait([started.sentinel], 0):
                    return None
                self.server_lost = _is_empty(started.sentinel)
            code: int | None = self._poll(started, flag)
        return code


def _is_empty(pipe: int) -> bool:
    """Whether a pipe that is ready has ended. The standard `poll` takes that for an exit with 255."""
    import fcntl
    import termios

    n_bytes = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, n_bytes)
    return n_bytes[0] == 0
