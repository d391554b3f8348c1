"""Waiting for a storage that does not answer: told once, tried again, given up after a while."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from project.common.errors import ProjectError
from project.common.processes import stop
from project.sweeps.study.connecting import reason
from project.sweeps.study.journal_file import JournalUnreachableError
from project.sweeps.study.storage import Place

log = logging.getLogger(__name__)

T = TypeVar("T")
_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 10.0
_UNTOLD_S = 1.0  # a database that another process is writing to is busy for a moment: no news
_KEPT_FOR_ENDING_S = 1.0


class StorageLostError(ProjectError):
    """Raised when a study's storage does not answer for too long; says what happens to the trials."""


class SectionLostError(RuntimeError):
    """Raised when the lock of the exclusive section was lost while its holder believed to have it."""


_OUTAGES = (OperationalError, InterfaceError, PoolTimeoutError, JournalUnreachableError, SectionLostError)


@dataclass(kw_only=True)
class Patience:
    """How long, and how, calls to one storage are repeated.

    Args:
        place: The storage, for what is said.
        timeout_s: How long a call may go unanswered.
        running: Numbers of the trials that run here, for what is said in the end.
    """

    place: Place
    timeout_s: float
    running: Callable[[], list[int]]

    def call(self, action: Callable[[], T]) -> T:
        """What `action` returns; it is repeated from its beginning while the storage does not answer.

        Raises:
            StorageLostError: It has not answered for `timeout_s`, or until shortly before a requested stop.
        """
        since, told = time.monotonic(), False
        for wait_s in _waits():
            try:
                value = action()
            except Exception as error:
                if not is_outage(error):
                    raise
                why = reason(self.place, error)
            else:
                if told:
                    log.warning("the study's storage answers again, after %.0f s", time.monotonic() - since)
                return value
            passed = time.monotonic() - since
            if not told and passed >= _UNTOLD_S:
                told = True
                log.warning("%s does not answer (%s); tried again for %g s", self.place.shown, why, self.timeout_s)
            self.pause(min(wait_s, self.left(since)))
            if self.left(since) <= 0:
                raise self.lost(f"has not answered for {time.monotonic() - since:.0f} s ({why})") from None
        raise AssertionError("waits never end")

    def left(self, since: float) -> float:
        """Seconds for which an attempt begun at `since` may go on; a requested stop leaves fewer."""
        left = since + self.timeout_s - time.monotonic()
        request = stop.stop_request()
        return left if request is None else min(left, request.seconds_left() - _KEPT_FOR_ENDING_S)

    @staticmethod
    def pause(seconds: float) -> None:
        """Waits; a request to stop wakes it, and one that came before does not make it spin."""
        if stop.stop_request() is None:
            stop.sleep(seconds)
        else:
            time.sleep(min(max(seconds, 0.0), _FIRST_WAIT_S))

    def lost(self, what: str) -> StorageLostError:
        """The error to give up with."""
        numbers = ", ".join(str(number) for number in sorted(self.running()))
        left = f"trials {numbers} stay RUNNING there" if numbers else "no trial of this shell stays RUNNING there"
        return StorageLostError(
            f"the study's storage {self.place.shown} {what}; {left}. The same command takes up what was not finished"
        )


def _waits() -> Iterator[float]:
    wait_s = _FIRST_WAIT_S
    while True:
        yield wait_s
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def is_outage(error: BaseException | None) -> bool:
    """Whether a call failed because its storage did not answer, so that the same call may succeed later."""
    if isinstance(error, _OUTAGES) or (isinstance(error, DBAPIError) and error.connection_invalidated):
        return True
    return error is not None and is_outage(error.__cause__)
