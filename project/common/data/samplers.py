"""Batch samplers whose every order follows from (seed, epoch), with the same number of batches on every rank."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from project.common.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Indices = NDArray[np.int64]

LAST_BATCH = ("keep", "drop", "merge")

# Rows of at most this many tokens more or less share a bucket of a token budget.
BUCKET_WIDTH = 8


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """How rows become batches. Their number depends on the rows' lengths alone, so that every epoch has as many.

    Args:
        batch_size: rows per batch; with a token budget the budget counts instead.
        token_budget: at most this many tokens per batch, padding included; None counts rows.
        last_batch: the incomplete batch is kept, dropped, or merged into the one before it. It always comes last.
        bucket_batches: batches of similar lengths are cut from this many batches' rows; 0 mixes all lengths.
        pad_multiple: lengths are padded to a multiple of this, which a token budget has to count.
        seed: with the epoch the only source of the order.
    """

    batch_size: int
    token_budget: int | None = None
    last_batch: str = "keep"
    bucket_batches: int = 0
    pad_multiple: int = 1
    seed: int = 0

    def batches(self, lengths: "Indices", *, epoch: int) -> "list[Indices]":
        """Returns the epoch's batches for all ranks together, each an array of row indices."""
        random = np.random.default_rng([self.seed, epoch])
        order = random.permutation(len(lengths))
        if self.token_budget is not None:
            full, rest = self._by_tokens(lengths, order=order)
        elif self.bucket_batches:
            full, rest = self._by_rows_in_buckets(lengths, order=order)
        else:
            full, rest = _cut(order, size=self.batch_size)
        full = [full[index] for index in random.permutation(len(full))]
        return self._with_rest(full, rest=rest)

    def _with_rest(self, full: "list[Indices]", *, rest: "Indices") -> "list[Indices]":
        if not len(rest) or self.last_batch == "drop":
            return full
        if self.last_batch == "merge" and full:
            return [*full[:-1], np.concatenate([full[-1], rest])]
        return [*full, rest]

    def _by_rows_in_buckets(self, lengths: "Indices", *, order: "Indices") -> "tuple[list[Indices], Indices]":
        # The rest is taken before sorting, or it would always be the longest rows.
        n_full = len(order) // self.batch_size * self.batch_size
        order, rest = order[:n_full], order[n_full:]
        bucket = np.arange(n_full) // (self.batch_size * self.bucket_batches)
        return _cut(order[np.lexsort((lengths[order], bucket))], size=self.batch_size)[0], rest

    def _by_tokens(self, lengths: "Indices", *, order: "Indices") -> "tuple[list[Indices], Indices]":
        """Cuts buckets of similar length; what is left of one joins the next longer one, so that one rest remains."""
        self._rows_within_budget(int(lengths.max()))
        bucket_of = (lengths[order] + BUCKET_WIDTH - 1) // BUCKET_WIDTH
        by_bucket = np.argsort(bucket_of, kind="stable")
        starts = np.unique(bucket_of[by_bucket], return_index=True)[1]
        full: list[Indices] = []
        rest = order[:0]
        for members in np.split(order[by_bucket], starts[1:]):
            longest = int(lengths[members].max())
            batches, rest = _cut(np.concatenate([rest, members]), size=self._rows_within_budget(longest))
            full += batches
        return full, rest

    def _rows_within_budget(self, longest: int) -> int:
        padded = max(1, -(-longest // self.pad_multiple) * self.pad_multiple)
        budget = self.token_budget or 0
        if padded > budget:
            raise DataError(
                f"managers.batch.token_budget: {budget} tokens, and the longest row has {padded} with its padding; "
                f"use at least {padded}, or a smaller task.data.max_length"
            )
        return budget // padded


def _cut(order: "Indices", *, size: int) -> "tuple[list[Indices], Indices]":
    n_full = len(order) // size * size
    return [order[start : start + size] for start in range(0, n_full, size)], order[n_full:]


class EpochBatchSampler:
    """A rank's share of each epoch's batches, for a DataLoader's `batch_sampler`; it can go on in the middle.

    Yields lists of `(epoch, row index)`: a worker that lives on over epochs learns the epoch from its rows. Iterating
    changes nothing, because a DataLoader with workers does it twice: whoever trains calls `set_position`, before each
    epoch. Batches that do not fill all ranks are left out of the epoch; which these are is drawn anew each time.

    Raises:
        DataError: there is not one batch for every rank.
    """

    def __init__(
        self, lengths: "Sequence[int] | Indices", *, plan: BatchPlan, rank: int = 0, world_size: int = 1
    ) -> None:
        self.lengths = np.asarray(lengths, dtype=np.int64)
        self.plan = plan
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0
        self.start = 0
        sizes = self._sizes() if len(self.lengths) else []
        self._n_batches = len(sizes) // world_size
        if not self._n_batches:
            raise DataError(self._describe_nothing(n_batches=len(sizes)))
        # Which full batches are left out changes with the epoch; an incomplete one comes last, so it goes first.
        self.smallest_batch = min(sizes[: len(sizes) - bool(len(sizes) % world_size)])

    def _sizes(self) -> list[int]:
        return [len(batch) for batch in self.plan.batches(self.lengths, epoch=0)]

    def _describe_nothing(self, *, n_batches: int) -> str:
        n_rows = len(self.lengths)
        if not n_rows:
            return "task.data: the training set is empty (0 rows); look at the source, its filters and the split"
        size = self.plan.batch_size if self.plan.token_budget is None else f"{self.plan.token_budget} tokens"
        return (
            f"loader.batch_size: {n_rows} training rows in batches of {size} on {self.world_size} ranks with "
            f"last_batch={self.plan.last_batch} (drop_last={self.plan.last_batch == 'drop'}) are {n_batches} batches, "
            f"and every rank needs one; use a batch size of at most {max(1, n_rows // self.world_size)}, or fewer ranks"
        )

    def __len__(self) -> int:
        """Batches of a full epoch on one rank, wherever it starts."""
        return self._n_batches

    def set_position(self, epoch: int, start: int = 0) -> None:
        """Chooses the epoch, and how many of this rank's batches are skipped because they were trained on already.

        A `start` at or beyond the end means the next epoch's beginning.
        """
        if start >= len(self):
            epoch, start = epoch + 1, 0
        self.epoch, self.start = epoch, start

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch, from its beginning."""
        self.set_position(epoch)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        # Not a generator: the position counts when iterating begins, not when the first batch is asked for.
        epoch, end = self.epoch, len(self) * self.world_size
        batches = self.plan.batches(self.lengths, epoch=epoch)[self.rank : end : self.world_size]
        return ([(epoch, int(index)) for index in batch] for batch in batches[self.start :])


class EvalBatchSampler:
    """Every row exactly once over all ranks: none repeated, none left out; a rank may have none.

    Yields lists of `(0, row index)`, rows of similar length together. Ranks differ by at most one row.
    """

    def __init__(
        self,
        n_rows: int,
        *,
        batch_size: int,
        lengths: "Sequence[int] | Indices | None" = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        order = np.arange(n_rows) if lengths is None else np.argsort(np.asarray(lengths), kind="stable")
        self.batch_size = batch_size
        self._rows = order[rank::world_size]

    def __len__(self) -> int:
        return (len(self._rows) + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for start in range(0, len(self._rows), self.batch_size):
            yield [(0, int(index)) for index in self._rows[start : start + self.batch_size]]
