"""Raises an exception in the main thread, also when that waits in a system call.

For the few cases in which a process must not go on: a worker whose rank is gone, a rank whose worker was killed. The
signal is SIGURG, which nothing else uses and whose default is to be ignored. It cannot reach a thread that is in native
code and does not return; whoever interrupts sets a limit and then ends the process.
"""

import signal
import threading
from types import FrameType

_pending: BaseException | None = None
_is_armed = False
_raised = threading.Event()


def install() -> None:
    """Prepares this process; call it in its main thread. Nothing happens where SIGURG does not exist."""
    global _is_armed, _pending
    if hasattr(signal, "SIGURG") and threading.current_thread() is threading.main_thread():
        _is_armed, _pending = True, None
        _raised.clear()
        signal.signal(signal.SIGURG, _raise_pending)


def disarm() -> None:
    """From now on nothing is raised: the work is over and closing has begun."""
    global _is_armed
    _is_armed = False


def uninstall() -> None:
    """Restores the default."""
    disarm()
    if hasattr(signal, "SIGURG") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGURG, signal.SIG_DFL)


def interrupt_main(error: BaseException) -> bool:
    """Lets `error` be raised in the main thread, the first time only; False when it will not be."""
    global _pending
    main = threading.main_thread().ident
    if not hasattr(signal, "pthread_kill") or main is None or not _is_armed or _pending is not None:
        return False
    _pending = error
    signal.pthread_kill(main, signal.SIGURG)
    return True


def wait_until_raised(limit_s: float) -> bool:
    """Whether the main thread has taken the error up within `limit_s`; False while native code holds it."""
    return _raised.wait(limit_s)


def _raise_pending(number: int, frame: FrameType | None) -> None:
    if _is_armed and _pending is not None:
        disarm()
        _raised.set()
        raise _pending
