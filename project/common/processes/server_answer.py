"""A limit on waiting for the process server: one that is stopped, or hangs, is ended, and with it what it forked."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from project.common.processes import linux, mp_internals, stop

log = logging.getLogger(__name__)

START_LIMIT_S = 30.0  # from asking the server for a process to its answer, which takes milliseconds


@contextlib.contextmanager
def answers_in_time() -> Iterator[None]:
    """Kills the server when it answers neither within a limit nor by the deadline of a request to stop.

    A stopped server, or one that hangs, would be waited for in system calls that know no limit.
    """
    done = threading.Event()
    threading.Thread(target=_wait_for_answer, args=(done,), name="server-answer", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _wait_for_answer(done: threading.Event) -> None:
    until = time.monotonic() + START_LIMIT_S
    while not done.wait(0.1):
        request = stop.stop_request()
        if time.monotonic() > until or (request is not None and request.seconds_left() < 1.0):
            pid = mp_internals.server_pid()
            with contextlib.suppress(OSError):
                # From a child the server is the parent, unless it has just ended.
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(mp_internals.SERVER_TITLE.encode()):
                    log.error("the process server (pid %d) did not answer in time and was killed", pid)
                    linux.kill_process(pid, linux.process_start_time(pid) or "")
            return
