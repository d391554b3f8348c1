"""Ranks that would not have the same number of steps, found before one waits for ever for another."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist

from project.common.errors import DataError

_WHY = "ranks that differ wait for each other for ever; give all of them the same rows and settings"


def require_even(facts: Mapping[str, int | Sequence[str]], *, world_size: int) -> None:
    """Compares what must be equal on all ranks, each of which calls this.

    Args:
        facts: Name to a count or to names, such as labels.
        world_size: Ranks.

    Raises:
        DataError: On every rank, with each one's number.
    """
    if world_size == 1:
        return
    gathered: list[Any] = [None] * world_size
    dist.all_gather_object(gathered, dict(facts))
    for name in facts:
        values = [found[name] for found in gathered]
        if any(value != values[0] for value in values):
            raise DataError(f"task.data: {described(name, values)}; {_WHY}")


def described(name: str, values: Sequence[Any]) -> str:
    """Each rank's value: `rank 0 has 4 batches, rank 1 has 5`."""
    if all(isinstance(value, int | str) for value in values):
        first = f"rank 0 has {values[0]} {name}"
    else:
        values = [", ".join(value) or "none" for value in values]
        first = f"rank 0 has the {name} {values[0]}"
    return ", ".join([first, *(f"rank {rank} has {value}" for rank, value in enumerate(values) if rank)])
