"""What runs in the process server: import, make sure that forking is safe, say so, serve.

The server holds no state of a run. A child forked from it is as safe as a spawned one as long as the server has no
thread that could hold a lock, no CUDA context and no open device.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from project.common.processes import handover, linux, mp_internals, signals, strays, tree_folder

# Threads that libraries start in native code and that are known to survive a fork in good order.
SAFE_NATIVE_THREADS = frozenset({"jemalloc_bg_thd"})
DEVICES = ("/dev/nvidia", "/dev/dri", "/dev/kfd")


def main(settings: dict[str, Any]) -> None:
    """Entry of the server process.

    Args:
        settings: `listener_fd`, `alive_fd`, `report_fd`, `preload` (module names), `parent` (pid), `bound` (whether the
            kernel shall end it with its starter's thread), `title`, `authkey`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals.let_in()
    os.setsid()  # a Ctrl-C of the terminal is for main alone
    if settings["bound"]:
        linux.die_with_parent()
        if os.getppid() != settings["parent"]:
            return
    linux.set_title(settings["title"])
    os.register_at_fork(before=_note_forker, after_in_child=_enter_child)
    os.environ.update(handover.process_environ())
    tree_folder.use(os.environ[strays.MARK])
    began, environ = time.monotonic(), dict(os.environ)
    with _Lifeline(settings["alive_fd"]):
        failed = _preload(settings["preload"])
    report = {
        "seconds": time.monotonic() - began,
        "failed": failed,
        "problems": unclean(),
        "files": loaded_files("project"),
        "environ": environ,
        "threads": native_threads(),
    }
    handover.set_by_imports.update({k: v for k, v in os.environ.items() if environ.get(k) != v})
    with os.fdopen(settings["report_fd"], "w") as file:
        json.dump(report, file)
    if report["problems"]:
        return
    # Python 3.12 and newer warn of forking beside any native thread; those that are here are known to be safe.
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
    gc.collect()
    gc.freeze()  # children neither scan nor dirty these pages
    mp_internals.serve(settings)


_forker = threading.local()  # a forked child keeps what the thread that forked has here


def _note_forker() -> None:
    # Asked before the fork: in a child the parent would be a stranger, if the forker has died by then.
    _forker.pid, _forker.is_main = os.getpid(), threading.current_thread() is threading.main_thread()


def _enter_child() -> None:
    """First thing in every forked child, before it has even read what it is for; also in what user code forks there."""
    if _forker.is_main:  # the kernel's parent is a thread, and others end before their process does
        linux.die_with_parent()
    if os.getppid() != _forker.pid:
        os._exit(1)


def _preload(modules: list[str]) -> dict[str, str]:
    """Imports `modules`; returns the error of each that failed."""
    failed = {}
    with handover.thread_variables_kept():
        os.environ.update(dict.fromkeys(handover.THREAD_VARIABLES, "1"))
        for name in modules:
            try:
                importlib.import_module(name)
            except Exception as error:  # noqa: BLE001 - reported to main, which decides
                failed[name] = f"{type(error).__name__}: {error}"
    return failed


class _Lifeline:
    """Ends an importing server whose starter is gone; its thread is over before serving begins."""

    def __init__(self, alive_fd: int) -> None:
        self._alive_fd = alive_fd
        self._done_r, self._done_w = os.pipe()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        readable, _, _ = select.select([self._alive_fd, self._done_r], [], [])
        if self._alive_fd in readable:
            os._exit(1)

    def __enter__(self) -> "_Lifeline":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._done_w)
        self._thread.join()
        os.close(self._done_r)


def native_threads() -> list[str]:
    """Names of all threads of this process but the main one; empty off Linux."""
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return []
    own = str(os.getpid())
    names = []
    for task in tasks.iterdir():
        if task.name != own:
            with contextlib.suppress(OSError):  # it has just ended
                names.append((task / "comm").read_text().strip())
    return sorted(names)


def unclean() -> list[str]:
    """Why this process must not be forked; empty when it may be."""
    problems = []
    if threading.active_count() > 1:
        problems.append("Python threads: " + ", ".join(t.name for t in threading.enumerate()[1:]))
    unknown = _unknown_threads()
    if unknown:
        problems.append("native threads: " + ", ".join(unknown))
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        problems.append("CUDA is initialised")
    devices = _open_gpu_devices()
    if devices:
        problems.append("open devices: " + ", ".join(devices))
    return problems


def _unknown_threads(limit_s: float = 1.0) -> list[str]:
    """Native threads that are not known to be safe. One that has been joined may take a moment to leave the kernel."""
    deadline = time.monotonic() + limit_s
    while True:
        unknown = [name for name in native_threads() if name not in SAFE_NATIVE_THREADS]
        if not unknown or time.monotonic() > deadline:
            return unknown
        time.sleep(0.005)


def _open_gpu_devices() -> list[str]:
    links = Path("/proc/self/fd")
    if not links.is_dir():
        return []
    targets = []
    for link in links.iterdir():
        try:
            targets.append(os.readlink(link))
        except OSError:
            continue  # the descriptor of the listing itself
    return [target for target in targets if target.startswith(DEVICES)]


def loaded_files(package: str) -> dict[str, float]:
    """Modification times of the loaded modules' files of `package`, to notice when one was edited."""
    files = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path and (name == package or name.startswith(package + ".")):
            files[path] = os.stat(path).st_mtime
    return files
