"""A small process beside the tree that outlives main by a moment: it ends and removes what a killed main leaves.

The kernel ends the process server with main, and so whatever was forked from it; none of those can tidy up. The next
start does the same, should this process have been killed as well.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from project.common.processes import strays, tree_folder
from project.common.processes.identity import ProcessKey, Role
from project.common.processes.linux import set_title
from project.common.processes.signals import STOP_SIGNALS

if TYPE_CHECKING:
    from project.common.process_registry import ProcessRecord

IN_ORDER_S = 4.0  # for the processes of the tree, which notice by themselves that main is gone


_beside: "subprocess.Popen[bytes] | None" = None


def start(folder: Path) -> None:
    """Starts the reaper of this process's tree."""
    global _beside
    paths = json.dumps([os.path.abspath(path) if path == "" else path for path in sys.path])
    code = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        "from project.common.processes.reaper import main; main(sys.argv[2])"
    )
    _beside = subprocess.Popen(
        [sys.executable, "-S", "-c", code, paths, str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def stop() -> None:
    """Ends the reaper: it is not needed any more."""
    global _beside
    if _beside is not None:
        _beside.kill()
        _beside.wait()
        _beside = None


def pid() -> int | None:
    """Its pid; None when this process is no main of a tree."""
    return None if _beside is None else _beside.pid


def main(folder: str) -> None:
    """Entry of the reaper: returns when main has ended and nothing of it is left."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    set_title("project: reaper")
    owner = tree_folder.owner_of(Path(folder))
    if owner is not None:  # else main has ended in order meanwhile
        _wait_for_end(owner)
        remove_stale()


def _wait_for_end(owner: ProcessKey) -> None:
    with contextlib.suppress(ProcessLookupError, AttributeError):
        fd = os.pidfd_open(owner.pid)
        if owner.is_alive():
            select.select([fd], [], [])
        os.close(fd)
    while owner.is_alive():  # no pidfd on this system
        time.sleep(0.2)


def remove_stale() -> None:
    """Ends and removes whatever trees of this user have left whose main is gone from this machine."""
    from project.common import live_runs
    from project.common.processes import shm_cleanup

    for folder, owner in tree_folder.stale().items():
        strays.end_tree(str(folder), leaders=_left_in_order(owner))
        shutil.rmtree(folder, ignore_errors=True)
    shm_cleanup.remove_stale()
    live_runs.remove_stale_pointers()


def _left_in_order(owner: ProcessKey) -> dict[int, str]:
    """Waits for what notices by itself that its main is gone; returns the start times, by pid, of all there were."""
    from project.common import live_runs, process_registry

    pointed = [run.run_dir for run in live_runs.pointed_runs() if run.main == owner]
    runs = [folder for run_dir in pointed for folder in live_runs.with_jobs(run_dir)]
    until = time.monotonic() + IN_ORDER_S
    while any(process_registry.living(run) for run in runs) and time.monotonic() < until:
        time.sleep(0.02)
    records = [record for run in runs for record in process_registry.read_run(run)]
    return {r.key.pid: r.key.start_time for r in records if r.key.is_local() and not _is_of_another_shell(r, owner)}


def _is_of_another_shell(record: "ProcessRecord", owner: ProcessKey) -> bool:
    """Shells that share a sweep are recorded in one folder: another one's main and server live on."""
    if record.identity.role is Role.MAIN:
        return record.key != owner
    return record.identity.role is Role.SERVER and record.parent_pid != owner.pid
