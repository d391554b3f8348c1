"""What stops a command for a known reason is told in its own words, and ends it with its exit code."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from project.common.errors import ProjectError
from project.common.processes import stop
from project.common.processes.stop import StopRequested

_has_begun = False


@contextmanager
def told_by_exit(*, errors: bool = True) -> Iterator[None]:
    """Turns our errors, references that lead nowhere and requests to stop into a message and `SystemExit`.

    Hydra would print a traceback, which adds nothing to the text.

    Args:
        errors: False lets errors through, for launchers that want them as they are.
    """
    global _has_begun
    from omegaconf.errors import OmegaConfBaseException

    _has_begun = True
    try:
        yield
    except OmegaConfBaseException as error:  # a reference in a circle, to nothing, or to an unset variable
        if not errors:
            raise
        first_line = str(error).partition("\n")[0]
        text = f"{error.full_key}: {first_line}; correct the reference, or give a value"
        raise SystemExit(_say(text, 2)) from error
    except ProjectError as error:
        if not errors:
            raise
        raise SystemExit(_say(error, error.exit_code)) from error
    except StopRequested as stopped:
        reason = stopped.request.reason
        raise SystemExit(_say(f"stopped before the run began ({reason})", stopped.request.exit_code)) from stopped


def exit_code_of(ended: SystemExit) -> int:
    """The exit code of a command that Hydra ran and ended.

    Hydra exits with 1 for every error. Before our own part began it means that the command line was refused; afterwards
    an error of ours, which some launchers raise for a job that they ran elsewhere, has its own code. Jobs that stopped
    with this process may have been told in another way than it.
    """
    code = ended.code if isinstance(ended.code, int) else 1
    request = stop.stop_request()
    if request is not None and (code in stop.EXIT_CODES.values() or isinstance(ended.__context__, ProjectError)):
        return request.exit_code
    if code != 1:
        return code
    if isinstance(ended.__context__, ProjectError):
        return ended.__context__.exit_code
    return 1 if _has_begun else 2


def _say(text: object, exit_code: int) -> int:
    print(text, file=sys.stderr)
    return exit_code
