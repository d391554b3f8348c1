"""When checkpoints are written, and how: `last` to go on from, `best` to keep; both always whole and loadable."""

import logging
import math
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.callbacks import Checkpoint

from project.common.errors import CheckpointError, DivergedError
from project.common.files.atomic import TEMPORARY_MARK
from project.common.managers import get_directory_manager, get_model_manager
from project.common.managers.metrics import unknown_metric
from project.common.process_registry import set_state

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from project.training.module import Module

log = logging.getLogger(__name__)

_KEY = "run"


class ManagedCheckpointIO(CheckpointIO):
    """Lets Lightning write and read through the model manager."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        get_model_manager().save(path, checkpoint)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return get_model_manager().load(path)

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


class Checkpoints(Checkpoint):
    """Writes `checkpoints/last.ckpt` and, at a new best value, `checkpoints/best.ckpt`.

    They are written where going on is exact: after an optimizer step that neither ends the epoch nor is followed by
    validation, after a validation within the epoch, and at the epoch's end.

    Args:
        monitor: Metric that decides which is best; None keeps no best.
        mode: `min` or `max`.
        every_n_steps: Also write `last` after so many optimizer steps; None: not by steps.
        every_s: Also write `last` when so many seconds have passed; None: not by time.
    """

    def __init__(
        self,
        *,
        monitor: str | None,
        mode: str = "max",
        every_n_steps: int | None = None,
        every_s: float | None = None,
    ) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode: '{mode}' is neither; use min or max")
        if every_n_steps is not None and every_n_steps < 1:
            raise ValueError(f"every_n_steps: {every_n_steps} is no distance; use 1 or more, or null")
        if every_s is not None and not every_s >= 0:
            raise ValueError(f"every_s: {every_s} is no time; use 0 or more, or null")
        self.monitor = monitor
        self.mode = mode
        self.every_n_steps = every_n_steps
        self.every_s = every_s
        self.best_value = math.nan
        self.best_step = -1
        self.has_new_best = False
        self._saved_at_step = -1
        self._saved_at_s = time.monotonic()

    @property
    def best_path(self) -> Path:
        """Where the best one is, or will be."""
        return get_directory_manager().layout.checkpoint("best")

    @property
    def last_path(self) -> Path:
        """Where the last one is, or will be."""
        return get_directory_manager().layout.checkpoint("last")

    @property
    def best_model_path(self) -> str:
        """Lightning's name for it, for `trainer.test(ckpt_path="best")`; empty when there is none."""
        return str(self.best_path) if self.best_step >= 0 else ""

    def state_dict(self) -> dict[str, Any]:
        return {"best_value": self.best_value, "best_step": self.best_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_value, self.best_step = state_dict["best_value"], state_dict["best_step"]
        if not self.best_path.exists():  # a new run that starts from another run's file
            self.best_value, self.best_step = math.nan, -1

    def on_train_start(self, trainer: "Trainer", pl_module: "Module") -> None:
        self._saved_at_s = time.monotonic()
        self._saved_at_step = trainer.global_step

    def is_due(self, step: int) -> bool:
        """Whether steps or seconds ask for a checkpoint after optimizer step `step`."""
        if step == self._saved_at_step:
            return False
        by_steps = self.every_n_steps is not None and step % self.every_n_steps == 0
        return by_steps or (self.every_s is not None and time.monotonic() - self._saved_at_s >= self.every_s)

    def on_validation_end(self, trainer: "Trainer", pl_module: "Module") -> None:
        if trainer.sanity_checking or trainer.fast_dev_run or trainer.state.fn != "fit":
            return
        if self.monitor is not None:
            self._compare(trainer, self.monitor)
        if not ends_epoch(trainer):
            self.save(trainer, pl_module)

    def _compare(self, trainer: "Trainer", monitor: str) -> None:
        if monitor not in trainer.callback_metrics:
            raise unknown_metric(monitor, available=trainer.callback_metrics)
        value = float(trainer.callback_metrics[monitor])
        if self._is_better(value):
            self.best_value, self.best_step, self.has_new_best = value, trainer.global_step, True

    def _is_better(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        if math.isnan(self.best_value):
            return True
        return value < self.best_value if self.mode == "min" else value > self.best_value

    def on_train_epoch_end(self, trainer: "Trainer", pl_module: "Module") -> None:
        self.save(trainer, pl_module)

    def save(self, trainer: "Trainer", module: "Module") -> None:
        """Writes `last`, and `best` if there is a new one; all ranks call it at the same step.

        Within an accumulation only `best` is written: its gradients would be missing when one goes on.

        Raises:
            DivergedError: The weights are not finite and went to `diverged.ckpt`; what was saved before stays.
        """
        if trainer.fast_dev_run or (is_accumulating(trainer) and not self.has_new_best):
            return
        set_state("saving")
        path = self.best_path if self.has_new_best else self.last_path
        is_diverged = not is_finite(module)
        if is_diverged:
            path = self.last_path.with_name("diverged.ckpt")
        started = time.monotonic()
        trainer.save_checkpoint(path)
        if is_diverged:
            raise diverged(trainer.global_step, kept=path)
        if self.has_new_best and trainer.is_global_zero and not is_accumulating(trainer):
            link(self.best_path, self.last_path)
        self.has_new_best = False
        self._saved_at_step, self._saved_at_s = trainer.global_step, time.monotonic()
        log.debug("saved %s at step %d in %.3f s", path.name, trainer.global_step, self._saved_at_s - started)
        set_state("training")

    def on_save_checkpoint(self, trainer: "Trainer", pl_module: "Module", checkpoint: dict[str, Any]) -> None:
        checkpoint[_KEY] = {
            "world_size": trainer.world_size,
            "is_epoch_end": is_epoch_done(trainer),
            "metrics": _gather(pl_module.train_metrics.states(), trainer),
        } | pl_module.facts

    def on_load_checkpoint(self, trainer: "Trainer", pl_module: "Module", checkpoint: dict[str, Any]) -> None:
        run = checkpoint.get(_KEY)
        if run is None or run["is_epoch_end"] or trainer.state.fn != "fit":
            return
        if run["world_size"] != trainer.world_size:
            raise CheckpointError(
                f"trainer.devices: {trainer.world_size} ranks cannot go on within an epoch that {run['world_size']} "
                f"began; use trainer.devices={run['world_size']}, or a checkpoint of an epoch's end"
            )
        pl_module.train_metrics.load_states(run["metrics"][trainer.global_rank])


def _gather(states: dict[str, Any], trainer: "Trainer") -> list[dict[str, Any]]:
    """Every rank's sums. At an epoch's end they were reset, so nothing has to be asked for."""
    if trainer.world_size == 1:
        return [states]
    if is_epoch_done(trainer):
        return []
    gathered: list[Any] = [None] * trainer.world_size
    dist.all_gather_object(gathered, states)
    return gathered


def is_finite(module: "Module") -> bool:
    """Whether every weight is a number."""
    return all(bool(torch.isfinite(p).all()) for p in module.parameters() if p.is_floating_point())


def diverged(step: int, *, kept: Path | None = None) -> DivergedError:
    """What is said when the weights are not finite after `step`; `kept` is the file that has them."""
    where = f" (they are in {kept})" if kept is not None else ""
    return DivergedError(
        f"step {step}: the training diverged, its weights are not finite{where}; "
        "lower task.optimizer.lr, set trainer.gradient_clip_val, or see where with trainer.detect_anomaly=true"
    )


def link(source: Path, target: Path) -> None:
    """Makes `target` the same file as `source`, at once; a copy where the file system has no links."""
    temporary = target.with_name(f"{target.name}{TEMPORARY_MARK}{os.getpid()}-link")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        shutil.copyfile(source, temporary)
    temporary.replace(target)


def ends_epoch(trainer: "Trainer") -> bool:
    """Whether the batch that is being or was trained on is its epoch's last."""
    return trainer.fit_loop.epoch_loop._num_ready_batches_reached()


def is_accumulating(trainer: "Trainer") -> bool:
    """Whether there are gradients that no optimizer step has used yet."""
    return trainer.fit_loop.epoch_loop._should_accumulate()


def is_epoch_done(trainer: "Trainer") -> bool:
    """Whether the epoch's batches and validation are over."""
    progress = trainer.fit_loop.epoch_progress.current
    return progress.ready == progress.processed


def may_save(trainer: "Trainer") -> bool:
    """Whether a checkpoint after this batch would be gone on from exactly.

    Not while gradients are accumulated, which are not saved; not at the epoch's last batch or where validation follows:
    Lightning would skip that validation. These get theirs after it.
    """
    loop = trainer.fit_loop.epoch_loop
    fetcher = trainer.fit_loop._data_fetcher
    return not (is_accumulating(trainer) or loop._num_ready_batches_reached() or loop._should_check_val_fx(fetcher))


def position(trainer: "Trainer") -> tuple[int, int]:
    """Epoch, and this rank's batches done in it, of the training that is about to begin or go on.

    Lightning restores its loops before it asks for the loader, so no state of the loader is needed.
    """
    epochs = trainer.fit_loop.epoch_progress.current
    done = trainer.fit_loop.epoch_loop.batch_progress.current.processed if epochs.ready != epochs.processed else 0
    return epochs.processed, done
