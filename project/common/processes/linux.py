"""What the kernel knows of processes. Where it is not Linux, each function says what it can and does no harm."""

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_GET_PDEATHSIG = 2
_PF_EXITING = 0x4
IS_LINUX = sys.platform == "linux"
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has the latter alone, which ends a process there


def die_with_parent() -> None:
    """Asks the kernel to SIGKILL this process when its parent's starting thread ends. Nothing happens off Linux."""
    if IS_LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@contextmanager
def outliving_parent() -> Iterator[None]:
    """Suspends `die_with_parent`: for a process that must see to the end of those below it, and is able to."""
    if not IS_LINUX:
        yield
        return
    prctl, before, parent = ctypes.CDLL(None, use_errno=True).prctl, ctypes.c_int(), os.getppid()
    prctl(PR_GET_PDEATHSIG, ctypes.byref(before), 0, 0, 0)
    prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)
    try:
        yield
    finally:
        if os.getppid() == parent:
            prctl(PR_SET_PDEATHSIG, before.value, 0, 0, 0)


def set_title(title: str) -> None:
    """Shows the title in `ps` and `htop`."""
    # Titles take the room of the first environment too, in which `strays` looks for the mark of a tree.
    os.environ.setdefault("SPT_NOENV", "1")
    try:
        from setproctitle import setproctitle
    except ImportError:
        return
    setproctitle(title)


def process_start_time(pid: int) -> str | None:
    """Start time of `pid` in clock ticks since boot, which no later process of that pid shares; None if there is none.

    Zombies count as gone. Off Linux psutil's creation time is used.
    """
    if not IS_LINUX:
        return _psutil_start_time(pid)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def is_ending(pid: int) -> bool:
    """Whether the kernel is taking `pid` down: its pipes are closed before it is gone. False off Linux."""
    try:
        flags = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[6])
    except OSError:
        return False
    return bool(flags & _PF_EXITING)


def is_stopped(pid: int) -> bool:
    """Whether `pid` was halted by a signal and waits for SIGCONT. A debugger's stops do not count. False off Linux."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def _psutil_start_time(pid: int) -> str | None:
    import psutil

    try:
        return str(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


@cache
def host() -> str:
    """This machine's name."""
    return socket.gethostname()


@cache
def boot_id() -> str:
    """What changes with every boot, so that pids of an earlier one are never taken for ours."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@cache
def pid_namespace() -> str:
    """The pid namespace: containers on one host may share a folder, but not their pids."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def kill_process(pid: int, start_time: str, *, with_signal: int = KILL) -> bool:
    """Signals exactly the process that was started at `start_time`; False if it is gone.

    The pidfd is opened before the identity is compared, so a pid that was taken over in between is never hit.
    """
    try:
        if not hasattr(os, "pidfd_open"):
            if process_start_time(pid) != start_time:
                return False
            os.kill(pid, with_signal)
            return True
        pidfd = os.pidfd_open(pid)
    except (ProcessLookupError, PermissionError):
        return False
    try:
        if process_start_time(pid) != start_time:
            return False
        signal.pidfd_send_signal(pidfd, with_signal)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
