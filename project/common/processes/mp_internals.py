"""The only place that touches private parts of the standard library's multiprocessing; fails loudly when they are gone.

Written against Python 3.11 to 3.14. Everything here is about one wish: a single server that forks every process of a
tree, and a way to hand plain data to any child, also to one that user code starts.
"""

import atexit
import contextlib
import inspect
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from multiprocessing import connection, forkserver, process, resource_tracker, spawn, util
from pathlib import Path
from typing import Any

from project.common.errors import ProcessServerError
from project.common.processes import linux, reaper, signals, strays, tracker, tree_folder
from project.common.processes.awaited_end import Poll, use_pidfd

SERVER_TITLE = "project: server"
_SERVER_ATTRIBUTES = ("_forkserver_address", "_forkserver_alive_fd", "_forkserver_pid", "_inherited_fds")
_HAS_AUTHKEY = hasattr(forkserver._forkserver, "_forkserver_authkey")  # since 3.14
_INHERITED = "project_handover"
_ENV = "/usr/bin/env"
_standard_spawn: Any = util.spawnv_passfds


def check_internals() -> None:
    """Raises when the standard library no longer has what this module builds on."""
    missing = [name for name in _SERVER_ATTRIBUTES if not hasattr(forkserver._forkserver, name)]
    missing += [name for name in ("main", "ensure_running", "connect_to_new_process") if not hasattr(forkserver, name)]
    if not hasattr(util, "spawnv_passfds") or not hasattr(process.current_process(), "_config"):
        missing.append("spawnv_passfds or _config")
    if missing:
        raise ProcessServerError(f"multiprocessing of this Python lacks {', '.join(missing)}; use start_method=spawn")


class ServerHandle:
    """A running server as its starter knows it.

    Args:
        popen: Its process; the starter reaps it.
        address: Its socket.
        alive_fd: Write end of the pipe that tells the server that somebody still needs it.
    """

    def __init__(self, popen: "subprocess.Popen[bytes]", *, address: str, alive_fd: int) -> None:
        self.popen, self.pid, self.address, self.alive_fd = popen, popen.pid, address, alive_fd


def launch_server(settings: dict[str, Any], *, report_fd: int) -> ServerHandle:
    """Starts a server process and makes it the one that `forkserver` children of this process come from.

    Args:
        settings: Plain data for `project.common.processes.server_main.main`.
        report_fd: Write end of a pipe on which the server says what it imported.
    """
    check_internals()
    ensure_tracker()
    folder = use_tree_folder()
    with socket.socket(socket.AF_UNIX) as listener:
        address = connection.arbitrary_address("AF_UNIX")
        listener.bind(address)
        if not util.is_abstract_socket_namespace(address):
            os.chmod(address, 0o600)
        listener.listen()
        alive_r, alive_w = os.pipe()
        authkey = os.urandom(32) if _HAS_AUTHKEY else None
        try:
            settings = settings | {
                "listener_fd": listener.fileno(),
                "alive_fd": alive_r,
                "report_fd": report_fd,
                "authkey": authkey.hex() if authkey else None,
            }
            with signals.held_back():
                server = _spawn_server(settings, folder=folder, fds=[listener.fileno(), alive_r, report_fd])
        except BaseException:
            os.close(alive_w)
            raise
        finally:
            os.close(alive_r)
    handle = ServerHandle(server, address=address, alive_fd=alive_w)
    _point_to(handle, authkey=authkey)
    return handle


def _spawn_server(settings: dict[str, Any], *, folder: str, fds: list[int]) -> "subprocess.Popen[bytes]":
    settings_r, settings_w = os.pipe()  # not in argv, which everybody can read
    try:
        code = (
            f"import json, os, sys; s = json.load(os.fdopen({settings_r})); sys.path[:] = s['sys_path']; "
            "from project.common.processes.server_main import main; main(s)"
        )
        arguments = [os.fsdecode(spawn.get_executable()), *util._args_from_interpreter_flags(), "-c", code]
        environ = os.environ | {strays.MARK: tree_folder.own_mark(folder)}
        popen = subprocess.Popen(arguments, pass_fds=[*fds, settings_r], env=environ, restore_signals=False)
        with os.fdopen(settings_w, "w") as file:
            json.dump(settings, file)
        return popen
    finally:
        os.close(settings_r)


def _point_to(handle: ServerHandle, *, authkey: bytes | None) -> None:
    server = forkserver._forkserver
    server._forkserver_address = handle.address
    server._forkserver_alive_fd = handle.alive_fd
    server._forkserver_pid = handle.pid
    if _HAS_AUTHKEY:
        server._forkserver_authkey = authkey
    _never_start_another()


def server_pid() -> int:
    """The server's pid as its starter knows it; to a process that was forked from it, it is the parent."""
    return forkserver._forkserver._forkserver_pid or os.getppid()


def forget_server(handle: ServerHandle) -> None:
    """Undoes `launch_server` in this process: closes the alive pipe and removes the socket."""
    os.close(handle.alive_fd)
    if not util.is_abstract_socket_namespace(handle.address):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(handle.address)
    server = forkserver._forkserver
    if server._forkserver_pid == handle.pid:
        server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None
    server.__dict__.pop("ensure_running", None)
    forkserver.ensure_running = server.ensure_running


def _never_start_another() -> None:
    """The standard `ensure_running` starts a new server in every child, which imports everything again."""
    forkserver._forkserver.ensure_running = resource_tracker.ensure_running  # type: ignore[method-assign]
    forkserver.ensure_running = resource_tracker.ensure_running


def serve(settings: dict[str, Any]) -> None:
    """Runs the standard serving loop in this process; its children adopt this server as theirs. Does not return."""
    arguments: dict[str, Any] = {}
    if _HAS_AUTHKEY:
        authkey = bytes.fromhex(settings["authkey"])
        forkserver._forkserver._forkserver_authkey = authkey
        read_fd, write_fd = os.pipe()
        os.write(write_fd, authkey)
        os.close(write_fd)
        arguments["authkey_r"] = read_fd
        if "authkey_r" not in inspect.signature(forkserver.main).parameters:
            raise ProcessServerError("multiprocessing.forkserver.main takes no authkey_r; use start_method=spawn")
    _never_start_another()
    forkserver.main(settings["listener_fd"], settings["alive_fd"], [], **arguments)


def hand_to_children(data: dict[str, Any] | None) -> None:
    """Leaves plain data that every `multiprocessing` child of this process gets, however and by whom it is started."""
    process.current_process()._config[_INHERITED] = data


def handed_by_parent() -> dict[str, Any] | None:
    """What `hand_to_children` left in the process that started this one."""
    found: dict[str, Any] | None = process.current_process()._config.get(_INHERITED)
    return found


def without_inheritance(config: dict[str, Any]) -> dict[str, Any]:
    """What the standard library hands to a child, but for our data: a process of ours has its own."""
    return {key: value for key, value in config.items() if key != _INHERITED}


def name_semaphores(prefix: str) -> None:
    """Sets how names of semaphores begin that this process makes from now on."""
    process.current_process()._config["semprefix"] = prefix  # type: ignore[attr-defined]


def popen(process_object: Any, method: str) -> Any:
    """Starts `process_object` by `method`, as the standard context of that name would; two threads may wait for it."""
    ensure_tracker()  # it unblocks signals when it starts, so it starts first
    use_tree_folder()
    with signals.held_back(), _marked(process_object.handover.mark), _known_start_method(method):
        started = multiprocessing.get_context(method).Process._Popen(process_object)
    if method == "spawn" and hasattr(os, "pidfd_open"):
        use_pidfd(started)
    started.poll = Poll(started)
    return started


def has_lost_server(process_object: Any) -> bool:
    """Whether a process that `popen` started ended with the server that forked it, so that nobody knows how."""
    started = process_object._popen
    return started is not None and bool(started.poll.server_lost)


def ensure_tracker() -> None:
    """Starts the resource tracker of this tree; by itself it ignores SIGINT and SIGTERM, but not a closed terminal.

    It inherits SIGHUP as blocked and never lets it in. Without it semaphores would be left, or reported as lost.
    """
    with signals.held_back():
        resource_tracker.ensure_running()
    atexit.unregister(_wake_tracker)
    atexit.register(_wake_tracker, os.getpid())


def _wake_tracker(starter: int) -> None:
    """A stopped tracker would stay for ever: it ends when it reads that nobody needs it."""
    pid = resource_tracker._resource_tracker._pid
    if pid is not None and os.getpid() == starter and hasattr(signal, "SIGCONT"):
        with contextlib.suppress(OSError):  # gone
            os.kill(pid, signal.SIGCONT)


_launching = threading.Lock()


@contextlib.contextmanager
def _marked(mark: str | None) -> Iterator[None]:
    """What this thread spawns within has the mark in the environment that it begins with; this process has none."""
    thread = threading.get_ident()

    def spawn_marked(path: bytes, arguments: list[str], fds: list[int]) -> Any:
        if threading.get_ident() != thread or mark is None or not os.path.exists(_ENV):
            return _standard_spawn(path, arguments, fds)
        command = [_ENV, f"{strays.MARK}={mark}", os.fsdecode(path), *arguments[1:]]
        return _standard_spawn(os.fsencode(_ENV), command, fds)

    with _launching:
        util.spawnv_passfds = spawn_marked  # type: ignore[assignment]
        try:
            yield
        finally:
            util.spawnv_passfds = _standard_spawn


@contextlib.contextmanager
def _known_start_method(method: str) -> Iterator[None]:
    """Each child is told this process's default start method, and would not find one that a library has added here.

    Processes of joblib have such a one.
    """
    found = multiprocessing.get_start_method(allow_none=True)
    if found is None or found in multiprocessing.get_all_start_methods():
        yield
        return
    contexts: Any = multiprocessing.context._default_context
    added, contexts._actual_context = contexts._actual_context, multiprocessing.get_context(method)
    try:
        yield
    finally:
        contexts._actual_context = added


def use_tree_folder() -> str:
    """Lets sockets of this process, and of all below it, lie in a folder that is known to be ours; returns it.

    The standard one is nobody's: after a kill it would lie in the temporary folder for ever. The first call makes this
    process the main one of a tree, which has a reaper beside it.
    """
    config = process.current_process()._config  # type: ignore[attr-defined]
    if config.get("tempdir") is None:
        tracker.bear_a_lost_one()
        reaper.remove_stale()
        folder = tree_folder.make()
        config["tempdir"] = str(folder)
        reaper.start(folder)
        util.Finalize(None, _end_tree, args=(folder, os.getpid()), exitpriority=-100)
    return str(config["tempdir"])


def hand_tree_folder(child: process.BaseProcess, folder: str) -> None:
    """Lets a child know the folder, also one that was made before there was any: it would take itself for a main."""
    child._config["tempdir"] = folder  # type: ignore[attr-defined]


def _end_tree(folder: Path, owner_pid: int) -> None:
    """At the very end of main: nothing of the tree is left, and its reaper has nothing to do."""
    server = forkserver._forkserver._forkserver_pid
    leader = {} if server is None else {server: linux.process_start_time(server) or ""}
    strays.end_tree(str(folder), leaders=leader, spared={server})
    tree_folder.remove(folder, owner_pid)
    reaper.stop()
