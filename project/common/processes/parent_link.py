"""A child's side of supervision: it obeys its parent's words, notices its parent's end, and sends messages up."""

import os
import threading
import time
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

from project.common import process_registry
from project.common.processes import interrupt, stop
from project.common.processes.handover import Handover, own_handover
from project.common.processes.identity import Identity, Role
from project.common.processes.outcome import Outcome, outcome_of

ORPHAN_LIMIT_S = {Role.TRIAL: 3.0, Role.RANK: 2.0, Role.WORKER: 0.5}


def start_watch(handover: Handover) -> None:
    """Starts the small thread that watches the parent for as long as this process lives."""
    threading.Thread(target=_watch, args=(handover,), name="supervision", daemon=True).start()


def _watch(handover: Handover) -> None:
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


class _Messages:
    """Other messages of the parent, such as an answer to a report; handed to whoever waits for that kind."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: dict[str, list[Any]] = {}
        self._relays: dict[str, Callable[[str, Any], None]] = {}

    def relay(self, kind: str, send: Callable[[str, Any], None]) -> None:
        """From now on messages of that kind go to `send`, on the thread that receives them."""
        self._relays[kind] = send

    def put(self, kind: str, data: Any) -> None:
        if kind in self._relays:
            self._relays[kind](kind, data)
            return
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
