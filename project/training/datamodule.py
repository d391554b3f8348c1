"""The LightningDataModule: loaders over the data manager's rows, in the batch manager's order."""

import logging
from collections.abc import Mapping
from typing import Any, cast

from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader

from project.common.data.samplers import EpochBatchSampler
from project.common.errors import DataError
from project.common.managers import get_batch_manager, get_cuda_manager, get_data_manager, get_tensor_manager
from project.common.processes.identity import current_identity
from project.common.processes.managed_process import ManagedContext
from project.training.checkpoint import position
from project.training.rng import generator
from project.training.stream import EvenLoader, StreamBatches
from project.training.workers import start_worker

log = logging.getLogger(__name__)

_SPLIT_NUMBERS = {"train": 0, "val": 1, "test": 2}


class DataModule(LightningDataModule):
    """Makes this rank's loaders.

    Args:
        loader: The configuration's `loader`; what concerns workers is left out without any.
        seed: For what the loaders draw themselves.
        test_split: The split that testing uses.
    """

    def __init__(self, *, loader: Mapping[str, Any], seed: int, test_split: str = "test") -> None:
        super().__init__()
        identity = current_identity()
        self._rank = (identity.rank if identity else 0) or 0
        self._world_size = identity.world_size if identity else 1
        self._loader = loader
        self._seed = seed
        self._test_split = test_split
        self._train_sampler: EpochBatchSampler | None = None
        self._stream: StreamBatches | None = None
        self._was_checked = False

    @property
    def train_sampler(self) -> EpochBatchSampler:
        """This rank's share of each epoch; its `len` is the number of micro-batches."""
        if self._train_sampler is None:
            lengths = get_data_manager().lengths("train")
            batches = get_batch_manager()
            self._train_sampler = batches.train_sampler(lengths, rank=self._rank, world_size=self._world_size)
        return self._train_sampler

    @property
    def stream(self) -> StreamBatches:
        """This rank's share of a stream."""
        if self._stream is None:
            plan = get_batch_manager().plan
            self._stream = StreamBatches(
                batch_size=plan.batch_size,
                drop_last=plan.last_batch == "drop",
                rank=self._rank,
                world_size=self._world_size,
            )
        return self._stream

    @property
    def n_batches(self) -> int | None:
        """Micro-batches of an epoch on one rank; None when a stream does not tell."""
        return None if get_data_manager().is_streamed else len(self.train_sampler)

    def facts(self) -> dict[str, int | list[str]]:
        """What has to be the same on every rank, or one would wait for another for ever."""
        data = get_data_manager()
        rows = {f"{split} rows": data.n_rows(split) for split in ("train", "val", "test")}
        batches = {} if self.n_batches is None else {"batches": self.n_batches}
        return {**batches, **rows, "labels": data.labels}

    def train_dataloader(self) -> DataLoader | EvenLoader:
        assert self.trainer is not None, "Lightning sets it"
        self._check_shared_memory("train")
        if get_data_manager().is_streamed:
            self.stream.set_position(*position(self.trainer))
            return EvenLoader(self._stream_loader(), self.stream)
        self.train_sampler.set_position(*position(self.trainer))
        return self._make("train", self.train_sampler, n_workers=self._loader["num_workers"])

    def _check_shared_memory(self, split: str) -> None:
        """Warns, once per run, when the batches that workers prepare cannot all lie in shared memory.

        Args:
            split: Where the longest rows are taken from; of a stream they are not known.
        """
        was_checked, self._was_checked = self._was_checked, True
        if self._rank or was_checked:
            return
        workers = self._loader["num_workers_eval"]
        if self.trainer is not None and self.trainer.state.fn == "fit":
            workers += self._loader["num_workers"]
        if not workers:
            return
        problem = get_tensor_manager().check_shared_memory(
            batch_mb=self._largest_batch_mb(split),
            prefetch=self._loader["prefetch_factor"] or 2,
            workers=workers,
            ranks=self._world_size,
        )
        if problem is not None:
            log.warning("%s", problem)

    def _largest_batch_mb(self, split: str) -> float:
        data, batches = get_data_manager(), get_batch_manager()
        lengths = data.lengths(split)
        n_rows = batches.batch_size
        if batches.token_budget is not None:
            n_rows = max(1, batches.token_budget // max(1, lengths.max()))
        rows = data.changed_rows(split, seed=self._seed)
        batch = batches.collate([rows[0, int(index)] for index in lengths.argsort()[-n_rows:]])
        return sum(part.nbytes for part in batch.values() if isinstance(part, Tensor)) / 2**20

    def start_epoch(self, epoch: int) -> None:
        """Before each epoch's iterator is made: Lightning tells an epoch to samplers only, not to batch samplers."""
        order = self.stream if get_data_manager().is_streamed else self.train_sampler
        order.set_position(epoch, 0)

    def val_dataloader(self) -> DataLoader:
        return self._evaluation_loader("val")

    def test_dataloader(self) -> DataLoader:
        return self._evaluation_loader(self._test_split)

    def _evaluation_loader(self, split: str) -> DataLoader:
        data = get_data_manager()
        if not data.n_rows(split):
            raise DataError(f"task.data: the split {split!r} has no rows; there are {', '.join(data.splits)}")
        self._check_shared_memory(split)
        sampler = get_batch_manager().eval_sampler(
            data.n_rows(split), lengths=data.lengths(split), rank=self._rank, world_size=self._world_size
        )
        return self._make(split, sampler, n_workers=self._loader["num_workers_eval"])

    def _stream_loader(self) -> DataLoader:
        options = self._options("train", n_workers=self._loader["num_workers"])
        options.pop("persistent_workers", None)  # workers learn the epoch when they start
        return DataLoader(self.stream, batch_size=None, **options)

    def _make(self, split: str, sampler: Any, *, n_workers: int) -> DataLoader:
        # Map-style by its methods, not by its class.
        rows = cast(Any, get_data_manager().changed_rows(split, seed=self._seed))
        return DataLoader(rows, batch_sampler=sampler, **self._options(split, n_workers=n_workers))

    def _options(self, split: str, *, n_workers: int) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if n_workers > 0:
            options = {
                "num_workers": n_workers,
                "multiprocessing_context": ManagedContext(n_workers=n_workers),
                "worker_init_fn": start_worker,
                "persistent_workers": self._loader["persistent_workers"],
                "prefetch_factor": self._loader["prefetch_factor"],
                "timeout": self._loader["timeout_s"],
            }
        return options | {
            "collate_fn": get_batch_manager().collate,
            # Without one of its own, iterating would draw from the process's random state.
            "generator": generator(self._seed, self._rank, _SPLIT_NUMBERS.get(split, 3)),
            "pin_memory": self._loader["pin_memory"] and get_cuda_manager().accelerator == "cuda",
        }


def optimizer_steps(*, n_batches: int | None, accumulation: int, trainer: Mapping[str, Any]) -> int | None:
    """Optimizer steps that the trainer's settings come to; None when only time or a metric ends the training.

    Lightning's own estimate makes the loaders before a checkpoint's position is restored.
    """
    max_epochs, max_steps = trainer["max_epochs"], trainer["max_steps"]
    by_epochs = None
    if n_batches is not None and max_epochs is not None and max_epochs >= 0:
        by_epochs = max_epochs * -(-batches_per_epoch(n_batches, trainer) // accumulation)
    by_steps = max_steps if max_steps is not None and max_steps >= 0 else None
    ends = [end for end in (by_epochs, by_steps) if end is not None]
    return min(ends) if ends else None


def batches_per_epoch(n_batches: int, trainer: Mapping[str, Any]) -> int:
    """How many of an epoch's batches `limit_train_batches`, a number or a share, leaves."""
    limit = trainer.get("limit_train_batches")
    if isinstance(limit, int):
        return min(n_batches, limit)
    return n_batches if limit is None else int(n_batches * limit)
