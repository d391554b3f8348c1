"""How the processes of this run are started: by the process server where that is possible, else by `spawn`."""

import logging

from project.common.errors import ProcessServerError
from project.common.processes import process_server
from project.common.processes.handover import process_environ

log = logging.getLogger(__name__)


def choose_start_method(wished: str) -> tuple[str, str | None]:
    """Has the process server ready when its processes come from it.

    Args:
        wished: `auto`, `forkserver` or `spawn`.

    Returns:
        The start method, and why it is not the one that was wished for; None when it is.
    """
    if wished == "spawn":
        process_server.stop()
        return "spawn", None
    reason = process_server.is_possible() or _serve()
    if reason is None:
        return "forkserver", None
    log.warning("processes.start_method: spawn is used, which takes seconds per process, because %s", reason)
    return "spawn", reason


def _serve() -> str | None:
    """Has the server ready; returns why this run's processes cannot come from it, or None when they can."""
    try:
        process_server.start()
        process_server.wait_until_ready()
    except ProcessServerError as error:
        process_server.stop()
        return str(error)
    differing = process_server.differing_variables(process_environ())
    return f"{', '.join(differing)} differ from what the server imported with" if differing else None
