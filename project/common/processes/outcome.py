"""How a process ended, as a plain record that its parent and later readers can rely on."""

import signal
import traceback
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from project.common.errors import CheckpointError, ConfigError, DataError, ProjectError
from project.common.files.secrets import mask_text
from project.common.processes.stop import StopRequested

_TRACEBACK = "Traceback (most recent call last)"
_LONGEST_TEXT = 2000  # characters


class Status(StrEnum):
    """The ways to end. A process that was killed writes none of them: the absence says it."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    CRASHED = "crashed"
    PRUNED = "pruned"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one process ended.

    Args:
        status: One of `Status`.
        exit_code: What it exits with.
        cause: One line for people, or None after success.
        exception: Class name of what was raised, if anything was.
        traceback: Its traceback as text; None for errors whose text says everything.
    """

    status: Status
    exit_code: int
    cause: str | None = None
    exception: str | None = None
    traceback: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"status": str(self.status)}


_REFUSALS = {error.__name__: error for error in (ConfigError, DataError, CheckpointError)}


def refusal_in(outcome: Outcome | None) -> ProjectError | None:
    """The error that says that what was given, settings, data or a checkpoint, will not do; None for all others."""
    error = _REFUSALS.get((outcome.exception if outcome else None) or "")
    return None if error is None or outcome is None else error(outcome.cause or "")


def outcome_of(error: BaseException | None) -> Outcome:
    """The outcome of a process whose work ended with `error`, or returned."""
    match error:
        case None:
            return Outcome(status=Status.COMPLETED, exit_code=0)
        case StopRequested():
            request = error.request
            return Outcome(status=Status.INTERRUPTED, exit_code=request.exit_code, cause=request.reason)
        case SystemExit():
            return _of_system_exit(error)
        case KeyboardInterrupt():
            return Outcome(status=Status.INTERRUPTED, exit_code=130, cause="KeyboardInterrupt was raised")
        case _ if is_pruned(error):
            return Outcome(status=Status.PRUNED, exit_code=1, cause=str(error) or "pruned")
        case ProjectError():
            return _of_exception(error, exit_code=error.exit_code)
        case _:
            return _of_exception(error, exit_code=1)


def is_pruned(error: BaseException | None) -> bool:
    """Whether it says that a trial shall end early: our own word for it, or Optuna's from user code."""
    return any(kind.__name__ in ("PrunedError", "TrialPruned") for kind in type(error).__mro__)


def _of_system_exit(error: SystemExit) -> Outcome:
    if isinstance(error.__context__, KeyboardInterrupt):  # Lightning exits with 1 in its place
        return outcome_of(error.__context__)
    code = error.code if isinstance(error.code, int) else int(error.code is not None)
    if code in (129, 130, 143):
        return Outcome(status=Status.INTERRUPTED, exit_code=code, cause=f"exited with {code}", exception="SystemExit")
    # sys.exit(0) in the middle of the work is no success: the work did not return.
    cause = f"sys.exit({error.code!r}) was called before the work was done"
    return Outcome(status=Status.CRASHED, exit_code=code or 1, cause=cause, exception="SystemExit")


def _of_exception(error: BaseException, *, exit_code: int) -> Outcome:
    cause = str(error) if isinstance(error, ProjectError) else f"{type(error).__name__}: {_text_of(error)}"
    cause = mask_text(cause)
    status = Status.REFUSED if exit_code == 2 else Status.CRASHED
    says_everything = isinstance(error, ProjectError) and error.__cause__ is None
    text = None if says_everything else mask_text("".join(traceback.format_exception(error)))
    return Outcome(status=status, exit_code=exit_code, cause=cause, exception=type(error).__name__, traceback=text)


def _text_of(error: BaseException) -> str:
    """What it says of itself, for one line: other people's errors may say megabytes, or fail at it."""
    try:
        text = str(error)
    except Exception as failed:  # noqa: BLE001 - a broken __str__ is no reason to lose the outcome
        return f"(its text cannot be had: {type(failed).__name__})"
    if _TRACEBACK in text:  # torch puts a worker's whole traceback into the text
        lines = [line for line in text.splitlines() if line.strip()]
        text = f"{lines[0]} {lines[-1].strip()}"
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} … ({len(text):,} characters)"


def describe_exit(exit_code: int | None) -> str:
    """Words for an exit code as `multiprocessing` gives it: negative for a signal."""
    if exit_code is None:
        return "still running"
    if exit_code < 0:
        try:
            return f"was killed by {signal.Signals(-exit_code).name}"
        except ValueError:
            return f"was killed by signal {-exit_code}"
    return f"exited with {exit_code}"
