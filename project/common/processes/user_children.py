"""What becomes of children that user code starts by `multiprocessing` from a process of ours: they end with it.

They are given plain data, hidden in what the standard library hands to every child; unpickling it starts a thread.
What a process has left running when its own work is over is ended by it.
"""

import logging
import multiprocessing
import os
import sys
import threading
import time
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from project.common.processes import stop, tracker

log = logging.getLogger(__name__)

IN_ORDER_S = 1.5  # from a request to end to the kill
STOP_S = 1.0  # to reach a safe point, once the parent is gone
CLOSE_S = 1.5  # to close managers afterwards
_START_S = 60.0


class Inheritance(dict[str, Any]):
    """Plain data that, arriving in a child, has that child watched over."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (dict(self),)


def _arrive(data: dict[str, Any]) -> Inheritance:
    tracker.bear_a_lost_one()
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    return Inheritance(data)


def _end_with_parent() -> None:
    began = time.monotonic()
    while (parent := multiprocessing.parent_process()) is None:  # it is set when the work begins
        if time.monotonic() - began > _START_S:
            return
        time.sleep(0.01)
    wait([parent.sentinel])
    deadline = time.monotonic() + STOP_S
    reason = f"its parent (pid {parent.pid}) is gone"
    stop.request_stop(stop.StopRequest(reason=reason, exit_code=1, deadline=deadline))
    time.sleep(STOP_S)
    closing = threading.Thread(target=_close_managers, daemon=True)
    closing.start()
    closing.join(CLOSE_S)
    os._exit(1)


def _close_managers() -> None:
    managers = sys.modules.get("project.common.managers")
    if managers is not None:
        managers.cleanup_managers()


def end_children(*, daemons_only: bool = False) -> None:
    """Asks the children of this process to end, and kills those that do not.

    The standard library waits for each without a limit, before it exits.

    Args:
        daemons_only: A child that is no daemon may finish its work.
    """
    left = [child for child in multiprocessing.active_children() if child.daemon or not daemons_only]
    for child in left:
        child.terminate()
    deadline = time.monotonic() + IN_ORDER_S
    for child in left:
        child.join(max(0.0, deadline - time.monotonic()))
        if child.is_alive():
            log.warning("%s (pid %s) did not end in time and was killed", child.name, child.pid)
            child.kill()
            child.join(1.0)


def name_bound_forks() -> None:
    """Says which mere forks of this process still run: where the server forked it, the kernel ends them with it."""
    known = {child.pid for child in multiprocessing.active_children()}
    if left := [pid for pid in _forks() if pid not in known]:
        log.warning("the task left running, and it ends with its process: fork (pid %s)", ", ".join(map(str, left)))


def _forks() -> list[int]:
    """Children that run what this process runs; empty off Linux."""
    found = []
    for children in Path("/proc/self/task").glob("*/children"):
        try:
            for pid in children.read_text().split():
                process = Path("/proc", pid)
                is_alive = (process / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
                if is_alive and (process / "cmdline").read_bytes() == Path("/proc/self/cmdline").read_bytes():
                    found.append(int(pid))
        except (OSError, IndexError):  # it has just ended
            continue
    return found
