"""Processes that a task has started and left running: found by what they inherited, and ended with their trial.

Each process below main carries a mark in the environment that it was started with. What it starts in turn carries the
same, whichever way: a fork, a subprocess, a daemon with a session of its own whose parent is long gone. A trial leads a
session besides, for what has cleared its environment. Found on Linux; elsewhere nothing is.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path

from project.common.processes import linux, stop

log = logging.getLogger(__name__)

MARK = "PROJECT_TREE"  # <the tree's folder>, and from a trial downwards <the tree's folder>/<number>
ALONE_S = 0.3  # many end by themselves when their parent is gone
IN_ORDER_S = 1.5  # from SIGTERM to SIGKILL
LAST_S = 0.5  # of the deadline of a request to stop, for SIGKILL to take effect
GIVE_UP_S = 1.5  # after that: in the kernel, which alone can end them
_LONGEST_COMMAND = 80


# Helpers that libraries start and that end by themselves, on a busy machine a little late: nothing the task left.
_OF_LIBRARIES = ("resource_tracker", "torch_shm_manager")


@dataclass(frozen=True, kw_only=True)
class Stray:
    """A process that was left running.

    Args:
        start_time: With the pid, exactly this process.
        command: The beginning of its command line.
    """

    pid: int
    start_time: str
    command: str

    def __str__(self) -> str:
        return f"{self.command} (pid {self.pid})"


def end_trial(mark: str, pid: int, start_time: str) -> list[Stray]:
    """Ends what is left below a trial that has ended; returns what was.

    Args:
        mark: Its mark, which all below it carry.
        pid: The trial's, which led a session.
        start_time: The trial's. A later process with its pid is a stranger, and so is that one's session.
    """
    return _end(lambda: _find(lambda carried: carried == mark, sessions={pid: start_time}))


def end_tree(mark: str, *, leaders: Mapping[int, str], spared: Container[int] = ()) -> list[Stray]:
    """Ends whatever carries the mark of a tree but this process; returns what it was.

    Args:
        mark: The mark of the tree.
        leaders: Start times, by pid, of processes of the tree that may have led a session.
        spared: Pids of those that are to live on.
    """
    below = mark + "/"

    def look() -> list[Stray]:
        found = _find(lambda carried: carried == mark or carried.startswith(below), sessions=leaders)
        return [stray for stray in found if stray.pid not in spared]

    return _end(look)


def _end(look: Callable[[], list[Stray]]) -> list[Stray]:
    """SIGTERM, then SIGKILL, until `look` finds nothing; what ends by itself at once is not counted."""
    began, request = time.monotonic(), stop.stop_request()
    ask_at, kill_at = began + ALONE_S, began + ALONE_S + IN_ORDER_S
    if request is not None:
        kill_at = min(kill_at, request.deadline - LAST_S)
    ended: dict[Stray, int] = {}
    while found := look():
        now = time.monotonic()
        if now > kill_at + GIVE_UP_S:
            log.warning("could not be ended: %s", ", ".join(map(str, found)))
            break
        number = signal.SIGKILL if now > kill_at else signal.SIGTERM
        for stray in found if now > min(ask_at, kill_at) else ():
            if ended.get(stray) != number:
                ended[stray] = number
                linux.kill_process(stray.pid, stray.start_time, with_signal=number)
        time.sleep(0.02)
    if left := [str(stray) for stray in ended if not any(name in stray.command for name in _OF_LIBRARIES)]:
        log.warning("the task left running, and it was ended: %s", ", ".join(left))
    return list(ended)


def _find(is_ours: Callable[[str], bool], *, sessions: Mapping[int, str]) -> list[Stray]:
    """Living processes whose mark is ours, or that are in the session of a process of ours; never this one."""
    if not linux.IS_LINUX:
        return []
    ours = {str(pid) for pid, started in sessions.items() if linux.process_start_time(pid) in (None, started)}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        if pid == os.getpid():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            is_member = is_ours(_mark_in((folder / "environ").read_bytes()))
            if fields[0] not in "ZX" and (is_member or fields[3] in ours):
                found.append(Stray(pid=pid, start_time=fields[19], command=_command(folder)))
        except (OSError, ValueError):
            continue  # it has ended, or is another user's
    return found


def _mark_in(environ: bytes) -> str:
    name = MARK.encode() + b"="
    return next((os.fsdecode(part[len(name) :]) for part in environ.split(b"\0") if part.startswith(name)), "")


def _command(folder: Path) -> str:
    words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return words[:_LONGEST_COMMAND] or (folder / "comm").read_text().strip()
