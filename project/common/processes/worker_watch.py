"""A rank's watch over its DataLoader workers: a death is noticed at once, idle or busy, and told with its cause.

torch alone notices a killed idle worker after 5 s, and a busy one by a `ConnectionResetError` that names nobody.
"""

import ctypes
import logging
import os
import signal
import threading
import time
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawValue
from typing import Any

from project.common import process_registry
from project.common.errors import ChildFailedError
from project.common.processes.identity import current_identity
from project.common.processes.interrupt import interrupt_main, wait_until_raised
from project.common.processes.outcome import Status, describe_exit, outcome_of

log = logging.getLogger(__name__)

GIVE_UP_S = 1.2  # for the main thread to take the error up; it may be in a collective, which nothing interrupts
LEAVE_S = 2.5  # for closing in order afterwards
LIKELY = {
    -9: "out of memory, or killed by somebody",
    -7: "/dev/shm is full: fewer workers, a smaller loader.prefetch_factor or smaller batches",
    -11: "a crash in native code",
}
_LET_GO = (0, -15)  # how a worker ends that is told to
_NO_ROW = -1
# How torch tells of a worker's end, before or without us.
_CONSEQUENCES = (OSError, EOFError)


class _Watch:
    """One thread per rank, alive while there are workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: dict[int, BaseProcess] = {}
        self._wake_r, self._wake_w = os.pipe()
        self._ended = False
        self.told = threading.Event()
        self.verdict: ChildFailedError | None = None
        threading.Thread(target=self._run, name="worker-watch", daemon=True).start()

    def add(self, worker: BaseProcess) -> None:
        with self._lock:
            self._workers[worker.sentinel] = worker
        os.write(self._wake_w, b"!")

    def end(self) -> None:
        """Deaths count no longer."""
        self._ended = True
        os.write(self._wake_w, b"!")

    def _run(self) -> None:
        while not self._ended:
            with self._lock:
                sentinels = list(self._workers)
            ready = wait([*sentinels, self._wake_r])
            if self._wake_r in ready:
                os.read(self._wake_r, 4096)
            for sentinel in sentinels:
                if sentinel in ready:
                    self._judge(sentinel)

    def _judge(self, sentinel: int) -> None:
        with self._lock:
            worker = self._workers.pop(sentinel)
        if self._ended:
            return
        was_meant = _was_meant_to_end(worker)
        if was_meant and not _crashed(worker):
            return
        self.verdict = self.verdict or ChildFailedError(_describe(worker))
        self.told.set()
        if not was_meant:
            _fail(self.verdict)


def _was_meant_to_end(worker: Any) -> bool:
    """torch sets the worker's event before it lets it go; one whose iterable data is exhausted ends by itself."""
    event = getattr(worker, "done_event", None)
    if event is not None and event.is_set():
        return True
    worker.join(1.0)
    is_known = worker.handover.identity.run_dir is not None
    return worker.exitcode == 0 and (not is_known or _said(worker).get("status") == Status.COMPLETED)


def _crashed(worker: Any) -> bool:
    """Whether it did not end as told: its rank may have noticed that before us, and be letting its workers go."""
    worker.join(1.0)
    said = _said(worker).get("status")
    if said is not None:
        return said == Status.CRASHED
    return worker.exitcode is not None and worker.exitcode not in _LET_GO


def _said(worker: Any) -> dict[str, Any]:
    """The outcome that the worker wrote; empty when it was killed."""
    run_dir = worker.handover.identity.run_dir
    record = process_registry.find_record(run_dir, worker.pid) if run_dir is not None else None
    return (record.outcome if record is not None else None) or {}


def _describe(worker: Any) -> str:
    identity = current_identity()
    why = f"likely {LIKELY[worker.exitcode]}" if worker.exitcode in LIKELY else _said(worker).get("cause")
    row = getattr(worker, "row", None)
    at_row = f" at row {row.value}" if row is not None and row.value != _NO_ROW else ""
    return (
        f"rank {(identity.rank if identity else 0) or 0}: DataLoader worker {worker.handover.identity.worker} "
        f"(pid {worker.pid}) {describe_exit(worker.exitcode)}{at_row}" + (f" ({why})" if why else "")
    )


def _fail(error: ChildFailedError) -> None:
    """Interrupts the rank, or ends it if that does not help."""
    log.error("%s", error, extra={"terminal": False})
    if not interrupt_main(error) or wait_until_raised(GIVE_UP_S):
        time.sleep(LEAVE_S)
    process_registry.finish(outcome_of(error))
    os._exit(1)


_watch: _Watch | None = None
_watch_pid: int | None = None


def watch_worker(worker: BaseProcess) -> None:
    """Puts a started worker under watch."""
    global _watch, _watch_pid
    if _watch is None or _watch_pid != os.getpid():
        _watch, _watch_pid = _Watch(), os.getpid()
    _watch.add(worker)


def end_watch() -> None:
    """From now on workers may end as they like: their rank is leaving."""
    if _watch is not None and _watch_pid == os.getpid():
        _watch.end()


def silence_torch() -> None:
    """Ends torch's own watch: a handler that raises in the main thread, wherever that is, when a worker ends."""
    while hasattr(signal, "SIGCHLD"):
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        except RuntimeError:  # from the handler, on the way
            continue
        break


def explain(error: BaseException) -> BaseException:
    """The death of a worker in place of what torch made of it: under `spawn` it may be quicker than the watch."""
    silence_torch()
    text = str(error)
    is_consequence = isinstance(error, _CONSEQUENCES) or (isinstance(error, RuntimeError) and "DataLoader" in text)
    if _watch is None or not is_consequence or not _watch.told.wait(1.0) or _watch.verdict is None:
        return error
    _watch.verdict.__cause__ = error
    return _watch.verdict


_row: Any = None


def new_row_slot() -> Any:
    """A number that a worker writes and its rank reads."""
    return RawValue(ctypes.c_longlong, _NO_ROW)


def use_row_slot(slot: Any) -> None:
    """In a worker: where `note_row` writes."""
    global _row
    _row = slot


def note_row(row: int) -> None:
    """In a worker: the row that it is at now, so that its rank can name it should it die. Does nothing elsewhere."""
    if _row is not None:
        _row.value = row
