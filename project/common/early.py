"""What holds from a command's first moment, before its other modules are imported, which takes a while."""

import contextlib
import os
import signal
import sys
from types import FrameType


def leave(number: int, frame: FrameType | None) -> None:
    """Ends the process with the signal's exit code and no traceback: nothing was begun yet, or all is done."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # the last: in the middle of a write
        sys.stdout.flush()
    os._exit(128 + number)


def leave_quietly_on_interrupt() -> None:
    """Takes the place of Python's own handler for SIGINT, until the command notes signals."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)


def require_directory() -> None:
    """Ends the command when the current directory was removed: relative paths lead nowhere."""
    try:
        os.getcwd()
    except FileNotFoundError:
        sys.stderr.write("the current directory was removed; change into one that is there\n")
        sys.exit(2)


def ensure_home() -> None:
    """Names the user's home where the environment does not, as cron and containers do: libraries write there."""
    home = os.path.expanduser("~")
    if os.name == "posix" and not os.environ.get("HOME") and os.path.isabs(home):
        os.environ["HOME"] = home
