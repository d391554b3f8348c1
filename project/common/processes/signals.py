"""Signal handlers: they only note; work happens at a safe point."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from project.common import early
from project.common.processes import stop

log = logging.getLogger(__name__)

STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
SECOND_SIGNAL_S = 3.0
_Handler = Callable[[int, FrameType | None], Any] | int | None


@contextmanager
def held_back() -> Iterator[None]:
    """Blocks the stop signals in this thread: none is lost, and a process started meanwhile begins with them blocked.

    So a child that still imports is neither ended by a Ctrl-C nor fills the terminal with its traceback. It calls
    `let_in` when its own handlers stand.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_in() -> None:
    """Ends what `held_back` began in the process that started this one."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


class SignalNotes:
    """Installs handlers that turn signals into stop requests, and restores what was there before.

    First signal: stop in order until the deadline. Second of a kind: a shorter deadline. Third: at once.
    Handlers that others installed are called after ours, but not those that would raise (Python's own for SIGINT).

    Args:
        deadline_s: Seconds from the first signal to the kill.
        ignore: Signals to ignore: children leave SIGINT to their parent.
        name: Who says that it received the signal; None for the main process.
    """

    def __init__(self, *, deadline_s: float, ignore: tuple[int, ...] = (), name: str | None = None) -> None:
        self._deadline_s, self._ignore, self._name = deadline_s, ignore, name
        self._previous: dict[int, _Handler] = {}
        self._counts: dict[int, int] = {}

    def allow(self, deadline_s: float) -> None:
        """Sets the deadline for signals from now on."""
        self._deadline_s = deadline_s

    def install(self) -> None:
        """Installs the handlers. Outside the main thread Python allows none: that is said, and nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            log.warning("started from a thread: signals cannot be handled here, stop the run through its main process")
            return
        global _current
        _current = self
        for number in STOP_SIGNALS:
            previous = signal.getsignal(number)
            if number in self._ignore:
                signal.signal(number, signal.SIG_IGN)
            elif previous is signal.SIG_IGN:
                if self._name is None:
                    log.info("%s is ignored, as the starting shell asked", signal.Signals(number).name)
                continue
            else:
                signal.signal(number, self._note)
            self._previous[number] = previous

    def restore(self) -> None:
        """Puts back what was there; may be called again."""
        global _current
        if _current is self:
            _current = None
        if threading.current_thread() is threading.main_thread():
            for number, previous in self._previous.items():
                signal.signal(number, previous if previous is not None else signal.SIG_DFL)
        self._previous.clear()

    def __enter__(self) -> "SignalNotes":
        self.install()
        return self

    def __exit__(self, *error: object) -> None:
        self.restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        count = self._counts[number] = self._counts.get(number, 0) + 1
        allowed_s = (self._deadline_s, min(SECOND_SIGNAL_S, self._deadline_s), 0.0)[min(count, 3) - 1]
        name = signal.Signals(number).name
        stop.request_stop(
            stop.StopRequest(
                reason=name if self._name is None else f"{self._name} received {name}",
                exit_code=stop.EXIT_CODES.get(number, 128 + number),
                deadline=time.monotonic() + allowed_s,
            )
        )
        previous = self._previous.get(number)
        if callable(previous) and previous not in (signal.default_int_handler, early.leave):
            previous(number, frame)


_current: SignalNotes | None = None  # whose handlers stand


@contextmanager
def noted(*, deadline_s: float) -> Iterator[None]:
    """Signals are noted within: by whoever does so already, now with this deadline, else by own handlers.

    Only the latter forgets a request at the end: a notebook lives on after an interrupted run.
    """
    if _current is not None:
        _current.allow(deadline_s)
        yield
        return
    with SignalNotes(deadline_s=deadline_s):
        try:
            yield
        finally:
            if threading.current_thread() is threading.main_thread():
                stop.forget_stop_request()
