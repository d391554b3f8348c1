"""What a process of the tree does first and last."""

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

from project.common import interrupt, linux, logs, process_registry, stop
from project.common.handover import Handover, own_handover, set_handover
from project.common.identity import Identity, Role, set_identity
from project.common.outcome import Outcome, outcome_of
from project.common.signals import SignalNotes

log = logging.getLogger(__name__)

ORPHAN_LIMIT_S = {Role.TRIAL: 3.0, Role.RANK: 2.0, Role.WORKER: 0.5}
_entered: "_Entered | None" = None


class _Entered:
    """What `enter` set up and `leave` takes down."""

    def __init__(self, handover: Handover) -> None:
        self.handover = handover
        self.signals = SignalNotes(
            deadline_s=handover.deadline_s,
            ignore=(signal.SIGINT,),
            name=handover.identity.label,
        )


def enter_early(handover: Handover) -> None:
    """What must hold before anything else is unpickled: the environment, and death with the starter."""
    if handover.environ is not None:
        os.environ.clear()
        os.environ.update(handover.environ)
    linux.die_with_parent()
    parent = parent_process()
    if parent is not None and handover.start_method == "spawn" and os.getppid() != parent.pid:
        os._exit(1)


def enter(handover: Handover) -> None:
    """Makes this process known and obedient, before its own work."""
    global _entered
    identity = handover.identity
    if identity.role is Role.TRIAL:
        os.setsid()
    _entered = _Entered(handover)
    _entered.signals.install()
    interrupt.install()
    set_identity(identity)
    set_handover(handover)
    set_title(identity)
    logs.set_up_files(identity)
    if logs.shows_on_terminal(identity):
        logs.set_up_terminal()
    logs.redirect_output(identity)
    parent = parent_process()
    parent_pid = parent.pid if parent is not None and parent.pid is not None else os.getppid()
    process_registry.register(identity, parent_pid=parent_pid, start_method=handover.start_method)
    _enable_faulthandler(identity)
    threading.Thread(target=_watch, args=(handover,), name="supervision", daemon=True).start()
    limit_threads(handover.threads)


def leave(outcome: Outcome) -> Outcome:
    """Closes the managers, writes the outcome and restores the signal handlers; returns what counts in the end."""
    process_registry.set_state("closing")
    try:
        _cleanup_managers()
    except BaseException as error:  # noqa: BLE001 - an interrupt during closing, raised after the rest
        if outcome.exit_code == 0:
            outcome = outcome_of(error)
    if outcome.traceback:
        log.error("%s", outcome.traceback.rstrip(), extra={"terminal": False})
    elif outcome.cause:
        log.info("ends: %s", outcome.cause, extra={"terminal": False})
    process_registry.finish(outcome)
    send("outcome", outcome.as_dict())
    if _entered is not None:
        interrupt.uninstall()
        _entered.signals.restore()
    logs.tear_down()
    return outcome


def _cleanup_managers() -> None:
    managers = sys.modules.get("project.common.managers")
    if managers is not None:
        managers.cleanup_managers()


def set_title(identity: Identity) -> None:
    """Shows the role in `ps` and `htop`."""
    try:
        from setproctitle import setproctitle
    except ImportError:
        return
    name = os.path.basename(identity.run_dir) if identity.run_dir else ""
    setproctitle(f"project: {identity.label} {name}".rstrip())


def _enable_faulthandler(identity: Identity) -> None:
    """A fatal signal leaves the stacks of all threads in the process's own log."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logs.AppendHandler) and handler.path.name.startswith(identity.label):
            faulthandler.enable(file=handler.fileno(), all_threads=True)


def limit_threads(threads: int | None) -> None:
    """Thread counts go by call, since a forked child's libraries have read their variables already."""
    torch: Any = sys.modules.get("torch")
    if threads is not None and torch is not None:
        torch.set_num_threads(threads)


def _watch(handover: Handover) -> None:
    """Obeys the parent's words and notices its end; runs in a small thread for as long as the process lives."""
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_w, False)
    stop.wake_on_request(wake_w)
    parent = parent_process()
    sources: list[Any] = [wake_r]
    if parent is not None:
        sources.append(parent.sentinel)
    if handover.control is not None:
        sources.append(handover.control)
    while True:
        request = stop.stop_request()
        if request is not None:
            _press(handover.identity, request)
        ready = wait(sources, None if request is None else request.seconds_left())
        if wake_r in ready:
            os.read(wake_r, 4096)
        if parent is not None and parent.sentinel in ready:
            sources.remove(parent.sentinel)
            _orphaned(handover.identity, parent.pid)
        if handover.control in ready and not _receive(handover.control):
            sources.remove(handover.control)


def _press(identity: Identity, request: stop.StopRequest) -> None:
    """A worker waits in torch's queue, where nothing asks for requests; everybody else has until the deadline."""
    if request.seconds_left() == 0:
        _exit_now(request)
    if identity.role is Role.WORKER:
        interrupt.interrupt_main(stop.StopRequested(request))


def _receive(control: Connection | None) -> bool:
    assert control is not None
    try:
        kind, data = control.recv()
    except (EOFError, OSError):
        return False
    if kind == "stop":
        stop.request_stop(stop.StopRequest(**data))
    else:
        process_messages.put(kind, data)
    return True


class _Messages:
    """Other messages of the parent, such as an answer to a report; handed to whoever waits for that kind."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: dict[str, list[Any]] = {}

    def put(self, kind: str, data: Any) -> None:
        with self._changed:
            self._messages.setdefault(kind, []).append(data)
            self._changed.notify_all()

    def take(self, kind: str, *, limit_s: float) -> Any:
        """The oldest message of that kind; raises TimeoutError after `limit_s`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._messages.get(kind), limit_s):
                raise TimeoutError(f"no {kind!r} message from the parent within {limit_s:g} s")
            return self._messages[kind].pop(0)


process_messages = _Messages()
_send_lock = threading.Lock()


def send(kind: str, data: Any) -> bool:
    """Sends a message up the supervision pipe; False when there is none or the parent is gone."""
    handover = own_handover()
    if handover is None or handover.control is None:
        return False
    try:
        with _send_lock:
            handover.control.send((kind, data))
    except (OSError, ValueError):
        return False
    return True


def _orphaned(identity: Identity, parent_pid: int | None) -> None:
    stop.request_stop(
        stop.StopRequest(
            reason=f"its parent (pid {parent_pid}) is gone",
            exit_code=1,
            deadline=time.monotonic() + ORPHAN_LIMIT_S.get(identity.role, 1.0),
        )
    )


def _exit_now(request: stop.StopRequest) -> None:
    """The deadline has passed and the work has not reached a safe point: write how it ended and go."""
    outcome = outcome_of(stop.StopRequested(request))
    process_registry.finish(
        Outcome(status=outcome.status, exit_code=outcome.exit_code, cause=f"{outcome.cause}; cut at the deadline")
    )
    os._exit(request.exit_code)
