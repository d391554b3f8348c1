"""Closing what may fail or hang, so that neither keeps the rest from being closed."""

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable

from project.common.processes.stop import StopRequested, stop_request

logger = logging.getLogger(__name__)

_LEAST_TIMEOUT_S = 0.5


class Closer:
    """Closes managers one by one, each within a time limit, and remembers what went wrong."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._interrupt: BaseException | None = None

    def close(self, name: str, close: Callable[[], None], timeout_s: float) -> None:
        """Calls `close` in a thread of its own, so that one that hangs can be left behind."""
        outcome: list[BaseException] = []
        thread = threading.Thread(target=_run, args=(close, outcome), name=f"close-{name}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends: no threads any more
            _run(close, outcome)
        else:
            self._wait(thread, _limit(timeout_s))
        if thread.is_alive():
            self.report(f"managers.{name}: closing hangs and was given up; it is at\n{_stack_of(thread)}")
        elif outcome and isinstance(outcome[0], Exception):
            self.report(f"managers.{name}: closing failed: {outcome[0]!r}", error=outcome[0])
        elif outcome:
            self._interrupt = self._interrupt or outcome[0]

    def report(self, problem: str, *, error: BaseException | None = None) -> None:
        """Logs a problem and keeps it for the end."""
        self._problems.append(problem)
        logger.error(problem, exc_info=error)

    def finish(self) -> list[str]:
        """Returns the problems, or raises the interrupt that came meanwhile; starts afresh."""
        problems, interrupt = self._problems, self._interrupt
        self._problems, self._interrupt = [], None
        if interrupt is not None:
            raise interrupt
        return problems

    def _wait(self, thread: threading.Thread, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            try:
                thread.join(left)
            except (KeyboardInterrupt, StopRequested) as interrupt:  # raised by a signal handler in this thread
                self._interrupt = self._interrupt or interrupt


def _run(close: Callable[[], None], outcome: list[BaseException]) -> None:
    try:
        close()
    except BaseException as error:  # noqa: BLE001 - handed to the thread that waits, which reports or raises it
        outcome.append(error)


def _limit(timeout_s: float) -> float:
    """A stop's deadline shortens the time that one manager may take, but leaves each a moment."""
    request = stop_request()
    return timeout_s if request is None else max(_LEAST_TIMEOUT_S, min(timeout_s, request.seconds_left()))


def _stack_of(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else "(it ended just now)"
