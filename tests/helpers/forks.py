"""What a process of ours does that forks by itself, as user code and some libraries do."""

import multiprocessing
import os
import threading
from typing import Any

from project.common.processes import parent_link


def send_exit_codes() -> None:
    """Forks from the main thread, from another one, and by `multiprocessing`; sends how each child ended."""
    codes: dict[str, Any] = {"main": _fork()}
    thread = threading.Thread(target=lambda: codes.update(thread=_fork()))
    thread.start()
    thread.join()
    child = multiprocessing.get_context("fork").Process(target=os._exit, args=(7,))
    child.start()
    child.join(10)
    parent_link.send("codes", codes | {"multiprocessing": child.exitcode})


def _fork() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
