"""Data and batches that differ between ranks, as a mistake would make them."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset

from project.common.data.samplers import EpochBatchSampler
from project.common.managers.batch import BatchManager
from project.common.processes.identity import current_identity


def own_rank() -> int:
    """This process's rank."""
    identity = current_identity()
    return (identity.rank if identity else 0) or 0


class OneMoreOnRankOne(BatchManager):
    """Gives rank 1 one batch more than rank 0."""

    def train_sampler(self, lengths: Any, *, rank: int = 0, world_size: int = 1) -> EpochBatchSampler:
        sampler = super().train_sampler(lengths, rank=rank, world_size=world_size)
        sampler._n_batches += rank
        return sampler


def filtered(path: str) -> Iterator[dict[str, Any]]:
    """Rows of a file; rank 1 leaves the last sixteen out."""
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    yield from rows[: len(rows) - 16 * own_rank()]


class Drawn(IterableDataset[dict[str, Any]]):
    """The user's own stream: rows of a file in an order that follows from the epoch, `more` of them on rank 1."""

    def __init__(self, path: str, *, n_rows: int, epoch: int, more: int = 0) -> None:
        self.rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
        self.order = random.Random(epoch)
        self.n_rows = n_rows + more * own_rank()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for _ in range(self.n_rows):
            yield self.order.choice(self.rows)
