"""Each way to end has one status, one exit code and one line for people."""

import signal
import sys

import pytest

from project.common.errors import ConfigError, DataError
from project.common.processes.outcome import Status, describe_exit, outcome_of
from project.common.processes.stop import StopRequest, StopRequested

STOPPED = StopRequested(StopRequest(reason="SIGHUP", exit_code=129, deadline=0.0))


@pytest.mark.parametrize(
    ("error", "status", "exit_code", "cause"),
    [
        (None, Status.COMPLETED, 0, None),
        (ValueError("bad"), Status.CRASHED, 1, "ValueError: bad"),
        (DataError("task.data.files: none"), Status.REFUSED, 2, "task.data.files: none"),
        (ConfigError("a: b", "c: d"), Status.REFUSED, 2, "a: b\nc: d"),
        (STOPPED, Status.INTERRUPTED, 129, "SIGHUP"),
        (KeyboardInterrupt(), Status.INTERRUPTED, 130, "KeyboardInterrupt was raised"),
        (SystemExit(143), Status.INTERRUPTED, 143, "exited with 143"),
        (SystemExit(0), Status.CRASHED, 1, "sys.exit(0) was called before the work was done"),
        (SystemExit(None), Status.CRASHED, 1, "sys.exit(None) was called before the work was done"),
        (SystemExit("text"), Status.CRASHED, 1, "sys.exit('text') was called before the work was done"),
        (SystemExit(7), Status.CRASHED, 7, "sys.exit(7) was called before the work was done"),
    ],
)
def test_every_way_to_end(error: BaseException | None, status: Status, exit_code: int, cause: str | None) -> None:
    outcome = outcome_of(error)

    assert (outcome.status, outcome.exit_code, outcome.cause) == (status, exit_code, cause)
    assert outcome.as_dict()["status"] == str(status)


def test_keeps_the_traceback_with_its_cause() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as error:
        outcome = outcome_of(error)

    assert outcome.exception == "ValueError"
    assert "KeyError: 'inner'" in (outcome.traceback or "")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "still running"),
        (3, "exited with 3"),
        (-signal.SIGKILL, "was killed by SIGKILL"),
        (-63, "was killed by signal 63"),
    ],
)
def test_describes_exit_codes(code: int | None, words: str) -> None:
    assert describe_exit(code) == words


def test_an_interrupt_that_lightning_turned_into_an_exit_is_told_as_what_it_was() -> None:
    try:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            sys.exit(1)
    except SystemExit as error:
        outcome = outcome_of(error)

    assert (outcome.exit_code, outcome.cause) == (130, "KeyboardInterrupt was raised")


class MuteError(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("broken")


def test_an_error_with_a_broken_text_or_an_endless_one_still_gives_a_line() -> None:
    """One lost the outcome, the other put ten megabytes on the terminal."""
    assert outcome_of(MuteError()).cause == "MuteError: (its text cannot be had: RuntimeError)"
    assert len(outcome_of(ValueError("x" * 10_000_000)).cause or "") < 2100


def test_a_traceback_within_a_text_is_left_out_of_the_one_line() -> None:
    """What a DataLoader worker raised comes with its whole traceback as text, which filled the terminal."""
    text = "Caught OSError in worker 0.\nOriginal Traceback (most recent call last):\n  at x\nOSError: no row 7\n"

    assert outcome_of(OSError(text)).cause == "OSError: Caught OSError in worker 0. OSError: no row 7"
