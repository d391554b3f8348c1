"""Training rows that come as a stream: the same batches for any number of workers, and going on in the middle."""

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset, get_worker_info

from project.common.errors import ConfigError, DataError
from project.common.managers import get_data_manager
from project.training.evenness import described

# How long, and how far, a rank counts on when another one has no more batches.
_COUNTING_S = 5.0
_COUNTED = 1000


class StreamBatches(IterableDataset[list[dict[str, Any]]]):
    """A rank's batches, each a list of tokenised rows, for a DataLoader without a batch size of its own.

    Every process reads the whole stream and tokenises its own batches: batch b of an epoch is rank b % world_size's,
    and its workers take turns. Batches that do not fill all ranks, which only the last ones can be, are left out.

    Args:
        batch_size: Rows per batch.
        drop_last: Whether an incomplete batch is left out, too.
        rank: Whose batches.
        world_size: Ranks.
    """

    def __init__(self, *, batch_size: int, drop_last: bool = False, rank: int = 0, world_size: int = 1) -> None:
        self.batch_size, self.drop_last = batch_size, drop_last
        self.rank, self.world_size = rank, world_size
        self.epoch = self.start = 0

    def set_position(self, epoch: int, start: int = 0) -> None:
        """Chooses the epoch, and how many of this rank's batches were trained on already."""
        self.epoch, self.start = epoch, start

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        # Not a generator: the position counts when iterating begins.
        return self._batches(self.epoch, self.start)

    def _batches(self, epoch: int, start: int) -> Iterator[list[dict[str, Any]]]:
        data, info = get_data_manager(), get_worker_info()
        worker, n_workers = (info.id, info.num_workers) if info is not None else (0, 1)
        rows, size = data.stream(epoch=epoch), self.batch_size * self.world_size
        skipped = sum(1 for _ in islice(rows, start * size))
        if skipped < start * size:
            raise DataError(
                f"task.data.stream: ends after {skipped} rows, and epoch {epoch + 1} goes on after {start * size} rows "
                "that were trained on; a stream must give the same rows each time"
            )
        number = 0
        while round_ := list(islice(rows, size)):
            first = self.rank * self.batch_size
            if self._is_complete(len(round_)) and number % n_workers == worker:
                own = round_[first : first + self.batch_size]
                yield data.encode(own, first=(start + number) * size + first)
            number += 1

    def _is_complete(self, n_rows: int) -> bool:
        """Whether a round of one batch per rank gives every rank one."""
        least = self.batch_size if self.drop_last else 1
        return n_rows >= (self.world_size - 1) * self.batch_size + least


class EvenLoader:
    """A loader whose length nobody knows, which ends on all ranks after the same number of batches or raises.

    Args:
        loader: Gives this rank's batches.
        stream: What it reads, for the position.
    """

    def __init__(self, loader: Iterable[Any], stream: StreamBatches) -> None:
        self._loader, self._stream = loader, stream

    def __iter__(self) -> Iterator[Any]:
        n_batches, batches = self._stream.start, iter(self._loader)
        while True:
            batch = next(batches, None)
            if not self._all_have_one(n_batches, batches, is_there=batch is not None):
                break
            n_batches += 1
            yield batch
        if not n_batches:
            raise DataError(
                f"task.data.stream: gave no batch: {self._stream.world_size} ranks need more than "
                f"{(self._stream.world_size - 1) * self._stream.batch_size} rows with loader.batch_size="
                f"{self._stream.batch_size}"
            )

    def _all_have_one(self, n_batches: int, batches: Iterator[Any], *, is_there: bool) -> bool:
        if self._stream.world_size == 1:
            return is_there
        n_there = torch.tensor([int(is_there)])
        dist.all_reduce(n_there)
        if n_there.item() not in (0, self._stream.world_size):
            self._refuse(n_batches + _count(batches) if is_there else n_batches)
        return is_there

    def _refuse(self, n_batches: int) -> None:
        counts: list[Any] = [None] * self._stream.world_size
        dist.all_gather_object(counts, n_batches)
        raise DataError(
            f"task.data.stream: {described('batches', counts)}; "
            "every rank must read the same rows: each takes its own share of them here"
        )


def _count(batches: Iterator[Any]) -> int:
    """The batches that are left, and the one that is there."""
    until = time.monotonic() + _COUNTING_S
    count = 1
    for _ in batches:
        count += 1
        if count >= _COUNTED or time.monotonic() >= until:
            break
    return count


def check_settings(config: Mapping[str, Any]) -> None:
    """Raises `ConfigError` for what needs the length of an epoch, or all of its rows."""
    trainer, batch = config["trainer"], config["managers"]["batch"]
    unknown = "a stream does not tell how long an epoch is"
    checks = {
        "trainer.val_check_interval": (_is_share(trainer.get("val_check_interval")), "1.0 or a number of batches"),
        "trainer.limit_train_batches": (_is_share(trainer.get("limit_train_batches")), "1.0 or a number of batches"),
        "trainer.overfit_batches": (bool(trainer.get("overfit_batches")), "0, or limit_train_batches"),
        "managers.batch.token_budget": (batch.get("token_budget") is not None, "null and loader.batch_size"),
        "managers.batch.last_batch": (batch.get("last_batch") == "merge", "keep or drop"),
        "task.data.pack": (bool(config["task"]["data"].get("pack")), "false, or files"),
    }
    problems = [f"{key}: {unknown}; use {cure}" for key, (is_wrong, cure) in checks.items() if is_wrong]
    if problems:
        raise ConfigError(*problems)


def _is_share(value: Any) -> bool:
    return isinstance(value, float) and value != 1.0
