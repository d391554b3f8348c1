"""A rank's watch over its DataLoader workers: a death is noticed at once, idle or busy, and told with its cause.

torch alone notices a killed idle worker after 5 s, and a busy one by a `ConnectionResetError` that names nobody.
"""

import logging
import os
import threading
import time
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from project.common import process_registry
from project.common.errors import ChildFailedError
from project.common.identity import current_identity
from project.common.interrupt import interrupt_main
from project.common.outcome import describe_exit, outcome_of

log = logging.getLogger(__name__)

GIVE_UP_S = 1.5
LIKELY = {
    -9: "out of memory, or killed by somebody",
    -7: "/dev/shm is full: fewer workers, a smaller loader.prefetch_factor or smaller batches",
    -11: "a crash in native code",
}


class _Watch:
    """One thread per rank, alive while there are workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: dict[int, BaseProcess] = {}
        self._thread: threading.Thread | None = None
        self._wake_r, self._wake_w = os.pipe()

    def add(self, worker: BaseProcess) -> None:
        with self._lock:
            self._workers[worker.sentinel] = worker
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="worker-watch", daemon=True)
                self._thread.start()
        os.write(self._wake_w, b"!")

    def _run(self) -> None:
        while True:
            with self._lock:
                sentinels = list(self._workers)
            ready = wait([*sentinels, self._wake_r])
            if self._wake_r in ready:
                os.read(self._wake_r, 4096)
            for sentinel in sentinels:
                if sentinel in ready and not self._ended(sentinel):
                    return

    def _ended(self, sentinel: int) -> bool:
        with self._lock:
            worker = self._workers.pop(sentinel)
        if _was_told_to_end(worker):
            return True
        _fail(worker)
        return False


def _was_told_to_end(worker: Any) -> bool:
    """torch sets the worker's event before it lets it go; an end without it is a death, whatever the exit code."""
    event = getattr(worker, "done_event", None)
    return event is not None and bool(event.is_set())


def _fail(worker: Any) -> None:
    identity = current_identity()
    worker.join(1.0)
    code = worker.exitcode
    likely = LIKELY.get(code)
    text = (
        f"rank {identity.rank if identity else 0}: DataLoader worker {worker.handover.identity.worker} "
        f"(pid {worker.pid}) {describe_exit(code)}" + (f" (likely {likely})" if likely else "")
    )
    error = ChildFailedError(text)
    log.error("%s", text, extra={"terminal": False})
    interrupt_main(error)
    time.sleep(GIVE_UP_S)  # the main thread may be in a collective, which nothing can interrupt
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
