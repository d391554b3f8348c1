"""The exceptions of this project; all share `ProjectError`."""

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class ProjectError(Exception):
    """Base of every error that we raise on purpose: its text is complete, a traceback adds nothing for the user."""

    exit_code = 1


class ConfigError(ProjectError):
    """Raised before anything starts, when a configuration cannot work.

    Args:
        problems: One line each, `<config key>: <what was found>; <what would do>`. All are reported together.
    """

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems: Sequence[str] = problems

    def __str__(self) -> str:
        return "\n".join(self.problems)


class DataError(ProjectError):
    """Raised when data is missing, empty or malformed; names the file and line, or the numbers that do not fit."""

    exit_code = 2  # like settings, it was given and will not do


class CheckpointError(ProjectError):
    """Raised when a checkpoint is missing, damaged, or of another model; names the file."""

    exit_code = 2


class StorageError(ProjectError):
    """Raised when something cannot be written where a run keeps its files: a full disk, a folder that is gone."""


class DivergedError(ProjectError):
    """Raised when training has made weights that are not finite: no later step can mend them."""


class PrunedError(ProjectError):
    """Raised in every rank of a trial that the sweep's pruner ends early."""


class NotInitializedError(ProjectError):
    """Raised when a manager is asked for too early; says which call is missing in which process."""


class ProcessBoundaryError(ProjectError):
    """Raised when something that belongs to one process is handed to or used in another."""


class ProcessServerError(ProjectError):
    """Raised when the process server cannot serve, or when the standard library no longer has what it builds on."""


class ChildFailedError(ProjectError):
    """Raised in a parent when a process below it failed; the text names role, pid and cause."""


@contextmanager
def refused_by(key: str) -> Iterator[None]:
    """Lets what the configuration names at `key` refuse its arguments, which refuses the configuration.

    Only for building, before any work: these are the errors that Python raises for impossible arguments.
    """
    try:
        yield
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{key}: {text} ({place.filename}, line {place.lineno})") from error
