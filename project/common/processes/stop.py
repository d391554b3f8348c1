"""Requests to stop: noted by a signal handler or a parent's message, obeyed at the next safe point."""

import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

# By number: SIGHUP does not exist everywhere.
EXIT_CODES = {2: 130, 15: 143, 1: 129}
# The reason of a rank that stops because the ranks agreed to: another one has the cause.
PASSED_ON = "another rank was asked to stop"
# How the reason begins of a rank that stops because another one wants the trial to end early.
PEER_PRUNED = "another rank was pruned"


@dataclass(frozen=True, kw_only=True)
class StopRequest:
    """Somebody wants this process to end in order.

    Args:
        reason: For people, such as `SIGTERM` or `rank 1 was killed by SIGKILL`.
        exit_code: What the process should exit with.
        deadline: Absolute, on `time.monotonic()`, which all processes of one machine share; after it the parent kills.
    """

    reason: str
    exit_code: int
    deadline: float

    def seconds_left(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self.deadline - time.monotonic())


class StopRequested(BaseException):
    """Raised at a safe point when a stop was requested. Not an `Exception`, so that `except Exception` lets it pass."""

    def __init__(self, request: StopRequest) -> None:
        super().__init__(request.reason)
        self.request = request


_lock = threading.RLock()  # a signal handler may interrupt a holder in the same thread
_request: StopRequest | None = None
_wake_fds: set[int] = set()


def request_stop(request: StopRequest) -> None:
    """Notes a request; a second one can only shorten the deadline."""
    global _request
    with _lock:
        if _request is None or request.deadline < _request.deadline:
            _request = request
    for fd in tuple(_wake_fds):
        with suppress(OSError):  # full: its reader is awake already
            os.write(fd, b"!")


def wake_on_request(fd: int) -> None:
    """Writes a byte to the non-blocking `fd` at every request, so that a loop that waits on its other end wakes."""
    _wake_fds.add(fd)


@contextmanager
def woken() -> Iterator[int]:
    """A descriptor that becomes readable when a request comes, for a `select` that waits for something else too."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    wake_on_request(write)
    try:
        yield read
    finally:
        no_longer_wake(write)
        os.close(read)
        os.close(write)


def sleep(seconds: float) -> None:
    """Waits, and no longer than until a request comes."""
    with woken() as fd:
        if _request is None:
            select.select([fd], [], [], seconds)


def no_longer_wake(fd: int) -> None:
    """Undoes `wake_on_request`."""
    _wake_fds.discard(fd)


def stop_request() -> StopRequest | None:
    """The request that this process should obey, or None. Costs an attribute look-up: ask at every step."""
    return _request


def raise_if_stop_requested() -> None:
    """A safe point: raises `StopRequested` if somebody asked this process to stop."""
    if _request is not None:
        raise StopRequested(_request)


def forget_stop_request() -> None:
    """Starts afresh: for a process that lives on after an interrupted run (a notebook, a test session)."""
    global _request
    with _lock:
        _request = None
