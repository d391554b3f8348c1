"""What a test must leave as it found it. Each guard lists what there is; what a test adds is a leak."""

import gc
import logging
import multiprocessing
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import psutil

from project.common import live_runs, process_registry
from project.common.processes import handover, mp_internals, process_server, reaper, stop
from project.common.processes.identity import current_identity
from tests.helpers.tree import descendants

SETTLE_S = 3.0
# Set by third-party packages when they are first imported.
SET_AT_IMPORT = frozenset({"PYTEST_CURRENT_TEST", "KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK"})
Facts = dict[Any, str]


def processes() -> Facts:
    """Living processes below this one, but for the session's process server and the resource tracker."""
    spared = {process_server.pid(), resource_tracker._resource_tracker._pid, reaper.pid()}  # type: ignore[attr-defined]
    return {(p.pid, p.create_time()): _describe(p) for p in descendants() if p.pid not in spared}


def _describe(process: psutil.Process) -> str:
    try:
        return f"process {process.pid} {' '.join(process.cmdline())[:120]}"
    except psutil.Error:
        return f"process {process.pid}"


def threads() -> Facts:
    """Python threads; tqdm's monitor lives as long as the process."""
    return {t.ident: f"thread {t.name}" for t in threading.enumerate() if type(t).__name__ != "TMonitor"}


def descriptors() -> Facts:
    """Open files and other descriptors, but for those of the session's process server and the resource tracker."""
    spared = {resource_tracker._resource_tracker._fd}  # type: ignore[attr-defined]
    server = process_server._server
    if server is not None:
        spared |= {server.handle.alive_fd, server.pidfd, server.report_fd}
    links: Facts = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the descriptor of this listing
        if int(name) not in spared:
            links[int(name), target] = f"descriptor {name} -> {target}"
    return links


def environment() -> Facts:
    """Environment variables; a removed or changed one counts too."""
    return {(k, v): f"environment variable {k}={v}" for k, v in os.environ.items() if k not in SET_AT_IMPORT}


def signal_handlers() -> Facts:
    """Handlers of all signals."""
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    return {(n, str(h)): f"signal handler {signal.Signals(n).name}: {h}" for n, h in handlers.items() if n in _NAMED}


_NAMED = frozenset(signal.Signals) - {signal.SIGALRM}  # pytest-timeout's


def shared_memory() -> Facts:
    """Entries of /dev/shm."""
    folder = Path("/dev/shm")
    names = os.listdir(folder) if folder.is_dir() else []
    return {name: f"/dev/shm/{name}" for name in names}


def state_files() -> Facts:
    """Files in the user's state folder of this project."""
    return {path: f"state file {path}" for path in live_runs.state_dir().rglob("*") if path.is_file()}


def stop_requests() -> Facts:
    """A noted request to stop, and who would be woken by one."""
    found: Facts = {("wakes", fd): f"descriptor {fd} is woken by stop requests" for fd in stop._wake_fds}
    return found | ({"request": f"stop request {stop.stop_request()}"} if stop.stop_request() else {})


def identities() -> Facts:
    """Who this process is said to be, and what it would hand to children."""
    said = {
        "identity": current_identity(),
        "handover": handover.own_handover(),
        "shared identity": mp_internals.handed_by_parent(),
        "process record": process_registry.own_record(),
    }
    return {(name, str(value)): f"{name} {value}" for name, value in said.items() if value is not None}


def logging_handlers() -> Facts:
    """Handlers of the root logger and of ours, and their levels; pytest's own come and go."""
    found: Facts = {}
    for logger in (logging.getLogger(), logging.getLogger("project")):
        for handler in logger.handlers:
            if not type(handler).__module__.startswith("_pytest"):
                found[logger.name, id(handler)] = f"handler {handler} of logger {logger.name}"
        found[logger.name, "level", logger.level] = f"level {logger.level} of logger {logger.name}"
    return found


GUARDS: dict[str, Callable[[], Facts]] = {
    "processes": processes,
    "threads": threads,
    "descriptors": descriptors,
    "environment": environment,
    "signal handlers": signal_handlers,
    "shared memory": shared_memory,
    "state files": state_files,
    "stop requests": stop_requests,
    "identities": identities,
    "logging handlers": logging_handlers,
}


def look() -> dict[str, Facts]:
    """What every guard sees now."""
    return {name: guard() for name, guard in GUARDS.items()}


def leaks(before: dict[str, Facts], *, settle_s: float = SETTLE_S) -> list[str]:
    """What has been added since `before`, after what ends by itself has had `settle_s` to do so.

    Shared memory has longer: what another session's killed process left looks like ours until that session removes it.
    """
    began = time.monotonic()
    while True:
        found = _added(before)
        limit_s = settle_s * (3 if all(text.startswith("/dev/shm/") for text in found) else 1)
        if not found or time.monotonic() - began > limit_s:
            return found
        gc.collect()
        time.sleep(0.02)


def _added(before: dict[str, Facts]) -> list[str]:
    reap_adopted()
    now = look()
    added = [text for name, facts in now.items() for key, text in facts.items() if key not in before[name]]
    added = [text for text in added if not _is_foreign(text)]
    gone = before["environment"].keys() - now["environment"].keys()
    return added + [f"{before['environment'][key]} was changed or removed" for key in sorted(gone)]


_OWNED = re.compile(r"/dev/shm/(?:sem\.project-|torch_|sem\.loky-|joblib_memmapping_folder_)(\d+)[-_]")
_foreign: set[str] = set()


def _is_foreign(text: str) -> bool:
    """Shared memory of a living process outside our tree: another session on this machine is at work."""
    owner = _OWNED.match(text)
    if owner is not None and psutil.pid_exists(int(owner[1])):
        ours = {os.getpid()} | {process.pid for process in descendants()}
        if int(owner[1]) not in ours:
            _foreign.add(text)
    return text in _foreign


def reap_adopted() -> None:
    """Reaps zombies that became ours because their parents are gone; nobody else waits for them."""
    known = {process.pid for process in multiprocessing.active_children()}
    known |= {popen.pid for popen in getattr(subprocess, "_active", [])}
    known |= {process_server.pid() or 0, reaper.pid() or 0, resource_tracker._resource_tracker._pid or 0}  # type: ignore[attr-defined]
    for process in psutil.Process().children():
        try:
            if process.pid not in known and process.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(process.pid, os.WNOHANG)
        except (psutil.NoSuchProcess, ChildProcessError):
            continue
