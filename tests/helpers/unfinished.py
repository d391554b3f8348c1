"""What tasks leave at work in their own process."""

import multiprocessing
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

_kept: list[Any] = []


def thread(seconds: float) -> None:
    """Leaves a thread that works for so long."""
    threading.Thread(target=time.sleep, args=(seconds,), name="uploader").start()


def child(seconds: float) -> None:
    """Leaves a child process that works for so long."""
    multiprocessing.get_context("spawn").Process(target=time.sleep, args=(seconds,), name="indexer").start()


def writing_thread(path: str) -> None:
    """Leaves a thread that soon has written a file."""
    threading.Thread(target=lambda: (time.sleep(0.5), Path(path).touch())).start()


def pools(_: float) -> None:
    """Leaves pools of both kinds that have nothing to do."""
    for pool in (ThreadPoolExecutor(1), ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))):
        _kept.append(pool)
        assert pool.submit(abs, -1).result(60) == 1


def thread_and_fail(seconds: float) -> None:
    """Leaves a thread, and fails."""
    thread(seconds)
    sys.exit(3)


def task(*, report: Any) -> dict[str, float]:
    """A task of a run that leaves a thread and a child, and is done."""
    thread(600)
    child(600)
    report(1, {})
    return {"value": 1.0}
