"""What stops a command for a known reason is told in its own words, and ends it with its exit code."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from project.common.errors import ProjectError
from project.common.processes.stop import StopRequested

_has_begun = False


def has_begun() -> bool:
    """Whether Hydra has handed over to our code: an exit code from then on is ours, not Hydra's."""
    return _has_begun


@contextmanager
def told_by_exit() -> Iterator[None]:
    """Turns our errors, references that lead nowhere and requests to stop into a message and `SystemExit`.

    Hydra would print a traceback, which adds nothing to the text.
    """
    from omegaconf.errors import OmegaConfBaseException

    global _has_begun
    _has_begun = True
    try:
        yield
    except OmegaConfBaseException as error:  # a reference in a circle, to nothing, or to an unset variable
        first_line = str(error).partition("\n")[0]
        text = f"{error.full_key}: {first_line}; correct the reference, or give a value"
        raise SystemExit(_say(text, 2)) from error
    except ProjectError as error:
        raise SystemExit(_say(error, error.exit_code)) from error
    except StopRequested as stopped:
        reason = stopped.request.reason
        raise SystemExit(_say(f"stopped before the run began ({reason})", stopped.request.exit_code)) from stopped


def _say(text: object, exit_code: int) -> int:
    print(text, file=sys.stderr)
    return exit_code
