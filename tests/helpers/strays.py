"""Ways in which a task starts processes and forgets them."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.helpers.processes import end_by
from tests.helpers.waiting import until

WAYS = ("subprocess", "shell", "fork", "daemon", "deaf daemon", "without environment", "multiprocessing")


def leave_running(folder: str, way: str) -> None:
    """Starts one process in each of the ways, each of which notes its pid in `folder`, and ends in the way named."""
    for start in _STARTS.values():
        start(folder)
    until(lambda: not _missing(folder), 60, what=lambda: _missing(folder))
    end_by(way)


def task(*, folder: str, report: Any) -> dict[str, float]:
    """A task of a run that does so, and then works until it is stopped."""
    for start in _STARTS.values():
        start(folder)
    until(lambda: not _missing(folder), 60, what=lambda: _missing(folder))
    Path(folder, "all").touch()
    step = 0
    while not Path(folder, "enough").exists():
        step += 1
        report(step, {})
        time.sleep(0.02)
    return {"steps": float(step)}


def _noted(folder: str) -> list[Path]:
    return [path for path in Path(folder).glob("*.pid") if path.read_text()]


def _missing(folder: str) -> str:
    return ", ".join(set(WAYS) - {path.stem for path in _noted(folder)})


def left(folder: Path) -> dict[str, int]:
    """Which of the processes that noted their pid in `folder` still live."""
    return {path.stem: int(path.read_text()) for path in _noted(str(folder)) if _lives(int(path.read_text()))}


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_left(folder: Path) -> None:
    """For the end of a test that has failed."""
    for pid in left(folder).values():
        os.kill(pid, signal.SIGKILL)


def _subprocess(folder: str) -> None:
    _note(folder, "subprocess", subprocess.Popen(["sleep", "600"]).pid)


def _shell(folder: str) -> None:
    os.system(f"sleep 600 & echo $! > {folder}/shell.pid")


def _fork(folder: str) -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    _note(folder, "fork", pid)


def _daemon(folder: str, name: str = "daemon") -> None:
    """The classic two forks, with a session of its own between them and no file kept open."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _note(folder, name, os.getpid())
            os.closerange(0, 256)
            time.sleep(600)
        os._exit(0)


def _deaf_daemon(folder: str) -> None:
    code = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    )
    subprocess.Popen([sys.executable, "-S", "-c", code, f"{folder}/deaf daemon.pid"], start_new_session=True)


def _without_environment(folder: str) -> None:
    _note(folder, "without environment", subprocess.Popen(["sleep", "600"], env={}).pid)


def _multiprocessing(folder: str) -> None:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
    process.start()
    _note(folder, "multiprocessing", process.pid or 0)


def _note(folder: str, name: str, pid: int) -> None:
    Path(folder, f"{name}.pid").write_text(str(pid))


_STARTS: dict[str, Callable[[str], None]] = dict(
    zip(
        WAYS,
        (_subprocess, _shell, _fork, _daemon, _deaf_daemon, _without_environment, _multiprocessing),
        strict=True,
    )
)
