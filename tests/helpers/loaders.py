"""Data sets and ranks for the tests of DataLoader workers. Imported in workers: torch is imported there anyway."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from project.common.processes import parent_link, worker_watch
from project.common.processes.identity import current_identity
from project.common.processes.managed_process import ManagedContext
from tests.helpers import probe
from tests.helpers.waiting import until


class Rows(Dataset[torch.Tensor]):
    """Numbers; each says where it is and fires the probe.

    Args:
        seconds: How long a row takes.
        folder: Where each worker touches a file once it is at a row.
    """

    def __init__(self, n_rows: int, *, seconds: float = 0.0, folder: str | None = None) -> None:
        self.n_rows, self.seconds, self.folder = n_rows, seconds, folder

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, row: int) -> torch.Tensor:
        worker_watch.note_row(row)
        probe.fire(step=row)
        identity = current_identity()
        if self.folder is not None and identity is not None:
            Path(self.folder, f"worker{identity.worker}").touch()
        time.sleep(self.seconds)
        return torch.tensor(row)


class Stream(IterableDataset[int]):
    """Four rows per worker; the workers end by themselves when these are through."""

    def __iter__(self) -> Iterator[int]:
        yield from range(4)


def loader(dataset: Any, *, n_workers: int = 2, persistent: bool = False, **more: Any) -> Any:
    """A loader as ranks build them."""
    context = ManagedContext(n_workers=n_workers)
    return DataLoader(
        dataset, num_workers=n_workers, persistent_workers=persistent, multiprocessing_context=context, **more
    )


def read_epochs(n_rows: int, persistent: bool, n_epochs: int = 2) -> None:
    """Reads whole epochs, then leaves; sends the rows of each."""
    rows = loader(Rows(n_rows), persistent=persistent)
    for _ in range(n_epochs):
        parent_link.send("epoch", sorted(int(row) for row in rows))


def read_stream(seconds_after: float) -> None:
    """Reads a stream to its end and works on with its workers gone."""
    rows = [int(row) for row in loader(Stream())]
    time.sleep(seconds_after)
    parent_link.send("rows", sorted(rows))


def break_out(n_rows: int) -> None:
    """Leaves the epoch after one batch, with unread batches in the queues and the iterator alive."""
    iterator = iter(loader(Rows(n_rows), prefetch_factor=8, persistent=True))
    parent_link.send("first", int(next(iterator)))
    parent_link.send("left", time.monotonic())


def read_slowly(folder: str, seconds: float = 0.0) -> None:
    """Reads one row and then computes (workers idle); or waits for a row that takes long (workers busy)."""
    iterator = iter(loader(Rows(1000, seconds=seconds, folder=folder)))
    next(iterator)
    time.sleep(600)


def end_a_worker_by_probe() -> None:
    """Reads; the probe in the environment ends a worker."""
    for _ in loader(Rows(1000)):
        pass


def read_lambda() -> None:
    """Gives a loader a collate function that cannot cross."""
    iter(loader(Rows(4), collate_fn=lambda rows: rows))


class _Unsendable:
    def __reduce__(self) -> Any:
        raise ValueError("one of a kind")


class Unsendable(Dataset[Any]):
    """Rows that no queue can send."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, row: int) -> Any:
        worker_watch.note_row(row)
        return _Unsendable()


def as_it_is(rows: list[Any]) -> list[Any]:
    """A collate function that does nothing."""
    return rows


def read_unsendable() -> None:
    """Reads rows that never arrive."""
    next(iter(loader(Unsendable(), collate_fn=as_it_is)))


def notice_before_the_watch(fault: int) -> None:
    """Lets workers go, after an error that the death of one of them caused, before the watch has looked at it.

    Args:
        fault: The signal that kills the worker; 0 for one that cannot send its batch.
    """
    may_look = threading.Event()
    judge = worker_watch._Watch._judge

    def judge_late(watch: Any, sentinel: int) -> None:
        assert may_look.wait(60)
        judge(watch, sentinel)

    worker_watch._Watch._judge = judge_late  # type: ignore[method-assign]
    iterator: Any = iter(loader(Rows(8) if fault else Unsendable(), n_workers=1, collate_fn=as_it_is))
    worker_watch.silence_torch()
    (worker,) = iterator._workers
    if fault:
        os.kill(worker.pid, fault)
    until(lambda: not worker.is_alive(), 60)
    worker.done_event.set()
    may_look.set()
    raise ConnectionResetError("by peer")


def fail_while_torch_interrupts() -> None:
    """Fails, and torch's signal handler raises while that error is looked at."""
    silence = worker_watch.silence_torch

    def silence_late() -> None:
        worker_watch.silence_torch = silence
        raise RuntimeError("DataLoader worker (pid 1) is killed by signal: Segmentation fault.")

    worker_watch.silence_torch = silence_late
    raise ConnectionResetError("by peer")


def read_with_pinning_thread() -> None:
    """A loader whose batches go through torch's pinning thread, as far as this machine has one."""
    rows = sorted(int(row) for row in loader(Rows(6), pin_memory=True))
    parent_link.send("rows", rows)


def ignore_sigterm_in_worker(worker: int) -> None:
    """A `worker_init_fn` of a worker that does not end when told to."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGURG, signal.SIG_IGN)


def fail_beside_stubborn_workers() -> None:
    """Raises while workers live that ignore SIGTERM."""
    rows = loader(Rows(1000, seconds=0.0), persistent=True, worker_init_fn=ignore_sigterm_in_worker)
    kept = iter(rows)
    next(kept)
    parent_link.send("pid", os.getpid())
    sys.exit(f"fails with {kept.__class__.__name__}")
