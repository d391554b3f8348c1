"""Batches: which rows, in which order, padded how, and how many of them make one optimizer step."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from project.common.data.collate import Collate, split_batch
from project.common.data.samplers import LAST_BATCH, BatchPlan, EpochBatchSampler, EvalBatchSampler
from project.common.errors import ConfigError, DataError
from project.common.managers.base import BaseManager, ThreadLocal
from project.common.processes.identity import Role

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from project.common.managers.tensor import TensorManager
    from project.common.managers.tokenizer import TokenizerManager

log = logging.getLogger(__name__)


class BatchManager(BaseManager):
    """Makes batches; every order follows from (seed, epoch), and every rank has as many.

    Args:
        tokenizer: For padding; None for data without text.
        tensor: Frees memory after an out-of-memory error; workers have none.
        batch_size: Rows per device and micro-batch.
        effective_batch_size: Rows per optimizer step over all devices; None for `batch_size` times the devices.
        token_budget: Tokens per device and micro-batch, padding included, in place of `batch_size`; None counts rows.
        effective_token_budget: Tokens per optimizer step over all devices, with a token budget.
        bucket_batches: Batches of similar lengths are cut from the rows of this many batches; 0 mixes all lengths.
        pad_multiple: Padded lengths are multiples of this.
        last_batch: `keep`, `drop` or `merge` an incomplete training batch.
        seed: Of the order of training rows.
    """

    name: ClassVar[str] = "batch"
    roles: ClassVar[frozenset[Role]] = frozenset({Role.RANK, Role.WORKER})

    def __init__(
        self,
        *,
        tokenizer: "TokenizerManager | None" = None,
        tensor: "TensorManager | None" = None,
        batch_size: int,
        effective_batch_size: int | None = None,
        token_budget: int | None = None,
        effective_token_budget: int | None = None,
        bucket_batches: int = 0,
        pad_multiple: int = 1,
        last_batch: str = "keep",
        seed: int = 0,
    ) -> None:
        self._tokenizer = tokenizer
        self._tensor = tensor
        self._effective_batch_size = effective_batch_size
        self._effective_token_budget = effective_token_budget
        self.batch_size = batch_size
        self.token_budget = token_budget
        self.pad_multiple = pad_multiple
        self._check_settings(bucket_batches=bucket_batches, last_batch=last_batch)
        self.plan = BatchPlan(
            batch_size=batch_size,
            token_budget=token_budget,
            last_batch=last_batch,
            bucket_batches=bucket_batches,
            pad_multiple=pad_multiple,
            seed=seed,
        )
        # How many parts a batch is cut into, because a larger one did not fit into memory.
        self._local = ThreadLocal(n_parts=1)

    def _check_settings(self, *, bucket_batches: int, last_batch: str) -> None:
        least = {"bucket_batches": 0}
        values = {
            "batch_size": self.batch_size,
            "effective_batch_size": self._effective_batch_size,
            "token_budget": self.token_budget,
            "effective_token_budget": self._effective_token_budget,
            "pad_multiple": self.pad_multiple,
            "bucket_batches": bucket_batches,
        }
        problems = [
            f"managers.batch.{key}: {value} is too small; use {least.get(key, 1)} or more"
            for key, value in values.items()
            if value is not None and value < least.get(key, 1)
        ]
        if last_batch not in LAST_BATCH:
            problems.append(f"managers.batch.last_batch: {last_batch!r} is unknown; use {', '.join(LAST_BATCH)}")
        if self.token_budget is None and self._effective_token_budget is not None:
            problems.append("managers.batch.effective_token_budget: there is no token_budget; set it, or this to null")
        if self.token_budget is not None and self._effective_batch_size is not None:
            problems.append(
                f"loader.effective_batch_size: {self._effective_batch_size} rows, but a token budget counts tokens; "
                "set managers.batch.effective_token_budget and loader.effective_batch_size=null"
            )
        if problems:
            raise ConfigError(*problems)

    @property
    def collate(self) -> Collate:
        """What makes a batch of rows; can be handed to DataLoader workers. See `Collate`."""
        if self._tokenizer is None or not self._tokenizer.is_configured:
            return Collate(pad_token_id=None, pad_multiple=self.pad_multiple)
        return Collate(
            pad_token_id=self._tokenizer.pad_token_id,
            padding_side=self._tokenizer.padding_side,
            pad_multiple=self.pad_multiple,
        )

    def train_sampler(
        self, lengths: "Sequence[int] | NDArray[Any]", *, rank: int = 0, world_size: int = 1
    ) -> EpochBatchSampler:
        """Returns a rank's training batches. `lengths` has the number of tokens of each row.

        Raises:
            DataError: there is not one batch for every rank.
        """
        return EpochBatchSampler(lengths, plan=self.plan, rank=rank, world_size=world_size)

    def eval_sampler(
        self,
        n_rows: int,
        *,
        lengths: "Sequence[int] | NDArray[Any] | None" = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> EvalBatchSampler:
        """Returns a rank's share of rows that are evaluated once each; it may be empty."""
        return EvalBatchSampler(n_rows, batch_size=self.batch_size, lengths=lengths, rank=rank, world_size=world_size)

    def accumulation(self, world_size: int = 1) -> int:
        """Returns how many micro-batches make one optimizer step, on any number of devices with the same total.

        Raises:
            ConfigError: the total is no multiple of what the devices take at once.
        """
        key, unit, total, part = "loader.effective_batch_size", "rows", self._effective_batch_size, self.batch_size
        if self.token_budget is not None:
            key, unit = "managers.batch.effective_token_budget", "tokens"
            total, part = self._effective_token_budget, self.token_budget
        at_once = part * world_size
        if total is None:
            return 1
        if total % at_once:
            near = max(at_once, round(total / at_once) * at_once)
            raise ConfigError(
                f"{key}: {total} {unit} are no multiple of {at_once} ({part} {unit} on {world_size} devices); "
                f"use {near}, or change loader.batch_size"
            )
        return total // at_once

    def refuse_single_rows(self, module: "nn.Module", sampler: EpochBatchSampler) -> None:
        """Raises `DataError` if an epoch would have a batch of one row for a model with batch normalisation."""
        from torch.nn.modules.batchnorm import _BatchNorm

        norms = [name for name, part in module.named_modules() if isinstance(part, _BatchNorm)]
        if norms and sampler.smallest_batch == 1:
            raise DataError(
                f"managers.batch.last_batch: {len(sampler.lengths)} rows in batches of {self.batch_size} leave a "
                f"batch of 1 row, which batch normalisation ({norms[0]}) cannot use; set it to drop or merge"
            )

    def run_within_memory(
        self,
        batch: "Mapping[str, Tensor]",
        step: "Callable[[dict[str, Tensor], float], None]",
        *,
        undo: Callable[[], None],
    ) -> int:
        """Runs a step on a batch; on an out-of-memory error again in smaller parts, to the same gradient.

        The number of parts is kept for this thread's further batches.

        Args:
            batch: Tensors, all with the rows first.
            step: Gets a part and its share of the batch's mean loss; goes forward and backward.
            undo: Takes back what a failed attempt has added to the gradients.

        Returns:
            The number of parts.
        """
        import torch

        n_rows = len(next(iter(batch.values())))
        while True:
            parts = split_batch(batch, parts=min(self._local.n_parts, n_rows))
            try:
                for part, share in parts:
                    step(part, share)
                return len(parts)
            except torch.OutOfMemoryError:
                if len(parts) >= n_rows:
                    raise
                self._local.n_parts = min(n_rows, 2 * len(parts))
                log.warning("a batch of %d rows did not fit; it runs in %d parts", n_rows, self._local.n_parts)
            # Outside the handler: the traceback holds the failed attempt's tensors.
            undo()
            if self._tensor is not None:
                self._tensor.clear_memory()

    def close(self) -> None:
        """Forgets how batches had to be cut."""
        self._local = ThreadLocal(n_parts=1)
