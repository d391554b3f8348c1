"""Main's side of the process server: start it early, wait until it serves, notice its death, end it.

One server forks every process of the tree. It is started before the configuration is composed, so that both overlap.
"""

import json
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from project.common.errors import ProcessServerError
from project.common.processes import mp_internals
from project.common.processes.outcome import describe_exit
from project.common.processes.stop import raise_if_stop_requested, woken

log = logging.getLogger(__name__)

# Third-party packages and the framework; never project.tasks or a user's module, whose edits must count at once.
MANAGERS = ("directory", "cuda", "tensor", "tokenizer", "data", "batch", "model", "amp", "metrics", "wandb")
PRELOAD = (
    "torch",
    "torch.distributed",
    "torch.distributed.algorithms.ddp_comm_hooks",
    "torch.utils.data",
    "torch.utils.serialization.config",
    "torch._dynamo.config",
    "lightning.pytorch",
    "torchmetrics.classification",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.modernbert.modeling_modernbert",  # the shipped task's; others are imported where they are used
    "transformers.optimization",
    "datasets",
    "hydra.utils",
    "project.training.rank",
    "project.training.trial",
    "project.training.workers",
    "project.training.progress",
    "project.common.row_mean",
    "project.common.config_check",
    "project.sweeps.hydra_ready",
    *(f"project.common.managers.{name}" for name in MANAGERS),
)
START_LIMIT_S = 180.0
# Read once, at import: a child that needs other values cannot be forked from the server.
READ_AT_IMPORT = ("HF_", "TORCH_", "OMP_", "MKL_", "OPENBLAS_", "ARROW_", "TRANSFORMERS_", "TOKENIZERS_", "KMP_")
# What scikit-learn sets in any process that imports it, a notebook's for example: nobody's wish.
SET_BY_LIBRARIES = {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}


class _Server:
    def __init__(self, handle: mp_internals.ServerHandle, report_fd: int) -> None:
        self.handle, self.report_fd = handle, report_fd
        self.report: dict[str, Any] | None = None
        self.received = b""
        self.started = time.monotonic()
        self.pidfd = os.pidfd_open(handle.pid) if hasattr(os, "pidfd_open") else None


_server: _Server | None = None


def is_possible() -> str | None:
    """None when a server can be used here, otherwise why not."""
    if sys.platform == "win32" or not hasattr(os, "fork"):
        return f"{sys.platform} cannot fork"
    try:
        mp_internals.check_internals()
    except ProcessServerError as error:
        return str(error)
    return None


def start(preload: tuple[str, ...] = PRELOAD) -> None:
    """Starts the server without waiting for it; does nothing when one is running and its code is current.

    Started from another thread, the server is not bound to it by the kernel: it ends when the last process that needs
    it has ended, which is said.
    """
    global _server
    if _server is not None and is_running() and not _edited_files():
        return
    stop()
    report_r, report_w = os.pipe()
    settings = {
        "preload": list(preload),
        "sys_path": [os.path.abspath(path) if path == "" else path for path in sys.path],
        "parent": os.getpid(),
        "bound": threading.current_thread() is threading.main_thread(),
        "title": mp_internals.SERVER_TITLE,
    }
    if not settings["bound"]:
        log.warning("the process server was started from a thread: it ends with its last process, not by the kernel")
    try:
        _server = _Server(mp_internals.launch_server(settings, report_fd=report_w), report_r)
    except BaseException:
        os.close(report_r)
        raise
    finally:
        os.close(report_w)


def wait_until_ready(limit_s: float = START_LIMIT_S) -> Mapping[str, Any]:
    """Returns the server's report once it serves.

    Raises:
        ProcessServerError: It died, took longer than `limit_s`, or refuses because forking would not be safe.
    """
    server = _running()
    if server.report is None:
        deadline = time.monotonic() + limit_s
        while chunk := _read(server.report_fd, deadline):
            server.received += chunk
        os.close(server.report_fd)
        server.report_fd = -1
        server.report = json.loads(server.received) if server.received else _no_report(server)
        log.debug("server ready after %.1f s", time.monotonic() - server.started)
    problems = [*server.report["problems"], *(f"{name}: {text}" for name, text in server.report["failed"].items())]
    if problems:
        raise ProcessServerError("process server: " + "; ".join(problems))
    return server.report


def _no_report(server: _Server) -> dict[str, Any]:
    until = time.monotonic() + 1.0
    while not _has_ended(server) and time.monotonic() < until:
        time.sleep(0.005)
    return {"problems": [f"it ended while importing ({_how_it_ended(server)})"], "failed": {}}


def _how_it_ended(server: _Server) -> str:
    """Looks at its exit without taking it from whoever waits for it."""
    try:
        ended = os.waitid(os.P_PID, server.handle.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        ended = None
    if ended is None:
        return "nobody knows how"
    return describe_exit(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status)


def _read(fd: int, deadline: float) -> bytes:
    with woken() as wake:
        raise_if_stop_requested()
        readable, _, _ = select.select([fd, wake], [], [], max(0.0, deadline - time.monotonic()))
    raise_if_stop_requested()
    if not readable:
        raise ProcessServerError("process server: not ready in time; use processes.start_method=spawn")
    return os.read(fd, 65536)


def _running() -> _Server:
    if _server is None:
        raise ProcessServerError("process server: not started in this process; call process_server.start() first")
    return _server


def is_running() -> bool:
    """Whether this process has started a server that lives."""
    return _server is not None and not _has_ended(_server)


def _has_ended(server: _Server) -> bool:
    if server.pidfd is not None:
        return bool(select.select([server.pidfd], [], [], 0)[0])
    try:
        return os.waitid(os.P_PID, server.handle.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def pid() -> int | None:
    """The server's pid; None when there is none."""
    return _server.handle.pid if _server else None


def differing_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables that libraries read at import and that `environ` has otherwise than the server had."""
    served = _running().report
    served_environ = served["environ"] if served else dict(os.environ)
    names = {name for name in {*environ, *served_environ} - SET_BY_LIBRARIES if name.startswith(READ_AT_IMPORT)}
    return sorted(name for name in names if environ.get(name) != served_environ.get(name))


def _edited_files() -> list[str]:
    report = _server.report if _server else None
    if not report:
        return []
    return [
        path for path, mtime in report["files"].items() if not os.path.exists(path) or os.stat(path).st_mtime != mtime
    ]


def kill() -> None:
    """Ends a server that no longer answers, and so all that it forked; does nothing without one."""
    if _server is not None and not _has_ended(_server):
        os.kill(_server.handle.pid, signal.SIGKILL)


def stop(limit_s: float = 1.0) -> None:
    """Ends the server, and with it whatever it forked that still lives. May be called again, in any state."""
    global _server
    server, _server = _server, None
    if server is None:
        return
    mp_internals.forget_server(server.handle)
    deadline = time.monotonic() + limit_s
    while not _has_ended(server) and time.monotonic() < deadline and server.report is not None:
        time.sleep(0.005)
    if not _has_ended(server):
        os.kill(server.handle.pid, signal.SIGKILL)
    server.handle.popen.wait()
    for fd in (server.report_fd, server.pidfd if server.pidfd is not None else -1):
        if fd >= 0:
            os.close(fd)


def forget_in_forked_child() -> None:
    """A forked child is not the server's starter and must neither wait for it nor end it."""
    global _server
    _server = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_in_forked_child)
