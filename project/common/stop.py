"""Requests to stop: noted by a signal handler or a parent's message, obeyed at the next safe point."""

import signal
import threading
import time
from dataclasses import dataclass

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


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


class StopRequested(BaseException):  # noqa: N818 - not an error: it ends the work in order
    """Raised at a safe point when a stop was requested. Not an `Exception`, so that `except Exception` lets it pass."""

    def __init__(self, request: StopRequest) -> None:
        super().__init__(request.reason)
        self.request = request


_lock = threading.RLock()  # a signal handler may interrupt a holder in the same thread
_request: StopRequest | None = None
_requested = threading.Event()


def request_stop(request: StopRequest) -> None:
    """Notes a request; a second one can only shorten the deadline."""
    global _request
    with _lock:
        if _request is None or request.deadline < _request.deadline:
            _request = request
    _requested.set()


def stop_request() -> StopRequest | None:
    """The request that this process should obey, or None. Costs an attribute look-up: ask at every step."""
    return _request


def raise_if_stop_requested() -> None:
    """A safe point: raises `StopRequested` if somebody asked this process to stop."""
    if _request is not None:
        raise StopRequested(_request)


def wait_for_stop(timeout_s: float) -> StopRequest | None:
    """Waits at most `timeout_s` for a request; returns it, or None."""
    _requested.wait(timeout_s)
    return _request


def forget_stop_request() -> None:
    """Starts afresh: for a process that lives on after an interrupted run (a notebook, a test session)."""
    global _request
    with _lock:
        _request = None
        _requested.clear()
