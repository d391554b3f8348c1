"""What a task that has ended left at work in its own process: threads and children that are no daemons.

Python waits for both before it exits, without a limit and without a word.
"""

import logging
import multiprocessing
import os
import sys
import threading
import time
from contextlib import suppress

from project.common.processes import stop

log = logging.getLogger(__name__)

QUIET_S = 1.0  # what ends by itself in this time is not worth a word
_LOOK_S = 0.02


def wait_for_work(limit_s: float) -> None:
    """Lets threads and children finish. Of those that do not, children are the caller's to end.

    Pools that were never shut down have no more work to expect, and end.
    """
    threading.Thread(target=_end_pools, name="end-of-pools", daemon=True).start()
    began, was_said = time.monotonic(), False
    while found := _at_work():
        waited = time.monotonic() - began
        if waited >= limit_s or stop.stop_request() is not None:
            log.warning("did not end with the task, and was cut: %s; let the task wait for it", ", ".join(found))
            return
        if waited > QUIET_S and not was_said:
            was_said = True
            text = "the task has ended, and left at work: %s; waiting (processes.finish_timeout_s: %g)"
            log.warning(text, ", ".join(found), limit_s)
        time.sleep(_LOOK_S)


def exit_past_threads(exit_code: int) -> None:
    """Exits without threads that still work, for which the standard way would wait; returns if there are none."""
    if not _threads():
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(exit_code)


def _end_pools() -> None:
    """What Python calls first when it exits, so that the idle threads of pools end."""
    for call in reversed(getattr(threading, "_threading_atexits", ())):
        call()


def _at_work() -> list[str]:
    children = [f"process {c.name} (pid {c.pid})" for c in multiprocessing.active_children() if not c.daemon]
    return [f"thread {thread.name}" for thread in _threads()] + children


def _threads() -> list[threading.Thread]:
    own = (threading.main_thread(), threading.current_thread())
    return [thread for thread in threading.enumerate() if not thread.daemon and thread not in own]
