"""Raises an exception in the main thread, also when that waits in a system call.

For the few cases in which a process must not go on: a worker whose rank is gone, a rank whose worker was killed. The
signal is SIGURG, which nothing else uses and whose default is to be ignored. It cannot reach a thread that is in native
code and does not return; whoever interrupts sets a limit and then ends the process.
"""

import signal
import threading
from types import FrameType

_pending: BaseException | None = None


def install() -> None:
    """Prepares this process; call it in its main thread. Nothing happens where SIGURG does not exist."""
    if hasattr(signal, "SIGURG") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGURG, _raise_pending)


def uninstall() -> None:
    """Restores the default."""
    if hasattr(signal, "SIGURG") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGURG, signal.SIG_DFL)


def interrupt_main(error: BaseException) -> bool:
    """Lets `error` be raised in the main thread, the first time only; False where that is not possible."""
    global _pending
    main = threading.main_thread().ident
    if not hasattr(signal, "pthread_kill") or main is None or signal.getsignal(signal.SIGURG) is not _raise_pending:
        return False
    _pending = error
    signal.pthread_kill(main, signal.SIGURG)
    return True


def _raise_pending(number: int, frame: FrameType | None) -> None:
    global _pending
    error, _pending = _pending, None
    if error is not None:
        raise error
