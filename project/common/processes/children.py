"""Ends what a process has started and left running when its own work is over."""

import logging
import multiprocessing
import time

log = logging.getLogger(__name__)

IN_ORDER_S = 1.5


def end_children(*, daemons_only: bool) -> None:
    """Asks the children of this process to end, and kills those that do not.

    The standard library waits for each without a limit, before it exits.

    Args:
        daemons_only: After success: a child that is no daemon may finish its work, and is waited for.
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
