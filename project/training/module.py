"""The LightningModule: one model in the convention of transformers, its optimizer and schedule, and exact metrics."""

import inspect
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from project.common.errors import ConfigError, refused_by
from project.common.managers.metrics import unknown_metric
from project.common.whitelist import instantiate
from project.training import plateau
from project.training.checkpoint import ends_epoch
from project.training.predictions import predicted
from project.training.split_metrics import SplitMetrics

if TYPE_CHECKING:
    from lightning.pytorch.utilities.types import OptimizerLRScheduler

_STEP_COUNTS = frozenset({"num_training_steps", "total_steps", "T_max", "num_warmup_steps"})
_NOT_FOR_THE_MODEL = frozenset({"row", "length"})


class Module(LightningModule):
    """Trains a model whose `forward(**inputs)` returns `.loss` and `.logits`.

    Args:
        model: Built by the model manager.
        optimizer: Node of a torch optimizer; gets the parameters in two groups, norms and biases without decay.
        scheduler: Node of a schedule, stepped with the optimizer, or None for a constant rate. The number of steps and
            the warm-up reach it under the names that it has for them. One that waits for a plateau is stepped after
            validation.
        warmup_fraction: Share of all steps in which the learning rate rises; None leaves it to the schedule.
        warmup_steps: The same as a number of steps, in place of the share; None takes the share.
        label_smoothing: Share of a training target that is spread over all classes; 0: the model's own loss.
        n_labels: Classes, for the metrics; None when rows have no label.
        total_steps: Optimizer steps of the whole training; None when there is no end to them.

    Attributes:
        predictions: A list keeps what testing predicts; None keeps nothing.
        latest: Split to its metrics when they were last computed.
        facts: Plain data that goes into every checkpoint.
        objective: Metric and mode that a plateau is one of, unless its schedule says otherwise.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        optimizer: Mapping[str, Any],
        scheduler: Mapping[str, Any] | None,
        warmup_fraction: float | None,
        warmup_steps: int | None = None,
        label_smoothing: float = 0.0,
        n_labels: int | None,
        total_steps: int | None,
    ) -> None:
        super().__init__()
        assert not any(p.is_shared() for p in model.parameters()), "another process shares these weights, both write"
        self.model = model
        self.train_metrics = SplitMetrics("train", n_labels=n_labels)
        self.val_metrics = SplitMetrics("val", n_labels=n_labels)
        self.test_metrics = SplitMetrics("test", n_labels=n_labels)
        self.predictions: list[dict[str, Tensor]] | None = None
        self.latest: dict[str, dict[str, float]] = {}
        self.facts: dict[str, Any] = {}
        self.objective: Mapping[str, str] = {"metric": "val/loss", "mode": "min"}
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._warmup_fraction, self._warmup_steps = warmup_fraction, warmup_steps
        self._label_smoothing = label_smoothing
        self._total_steps = total_steps

    def forward(self, **inputs: Tensor) -> Any:
        return self.model(**inputs)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        outputs = self._step(batch, self.train_metrics)
        if self._label_smoothing:
            return nn.functional.cross_entropy(outputs.logits, batch["labels"], label_smoothing=self._label_smoothing)
        loss: Tensor = outputs.loss
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self._step(batch, self.val_metrics)

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        outputs = self._step(batch, self.test_metrics)
        if self.predictions is not None:
            kept = predicted(batch, outputs.logits)
            self.predictions.append({name: value.cpu() for name, value in kept.items()})

    def _step(self, batch: Mapping[str, Tensor], metrics: SplitMetrics) -> Any:
        outputs = self.model(**{name: value for name, value in batch.items() if name not in _NOT_FOR_THE_MODEL})
        missing = [name for name in ("loss", "logits") if not isinstance(getattr(outputs, name, None), Tensor)]
        if missing:
            raise ConfigError(
                f"task.model: the forward of {type(self.model).__name__} returned {type(outputs).__name__} without "
                f"{' and '.join(missing)}; return an object that has .loss and .logits, both tensors"
            )
        metrics.update(outputs, batch["labels"])
        return outputs

    def on_train_epoch_end(self) -> None:
        self._log_epoch(self.train_metrics)

    def on_validation_epoch_end(self) -> None:
        self._log_epoch(self.val_metrics)
        if self.trainer.state.fn == "fit" and not self.trainer.sanity_checking:
            plateau.follow(self.trainer.lr_scheduler_configs, self.latest["val"], ends_epoch=ends_epoch(self.trainer))

    def on_test_epoch_end(self) -> None:
        self._log_epoch(self.test_metrics)

    def _log_epoch(self, metrics: SplitMetrics) -> None:
        values = metrics.compute()
        # Already one number for all ranks: torchmetrics gathered the sums.
        self.log_dict(values, logger=False)
        self.latest[metrics.split] = {name: value.item() for name, value in values.items()}
        self.write(self.latest[metrics.split])

    def write(self, values: Mapping[str, float]) -> None:
        """Logs at once: Lightning does so after the hooks that save checkpoints, and a kill between would lose it."""
        for logger in self.loggers:
            logger.log_metrics({"epoch": self.current_epoch, **values}, step=self.global_step)

    def configure_optimizers(self) -> "OptimizerLRScheduler":
        with refused_by("task.optimizer"):
            optimizer = instantiate(self._optimizer, _partial_=True)(parameter_groups(self.model))
        if self._scheduler is None:
            return optimizer
        with refused_by("task.scheduler"):
            scheduler = make_scheduler(
                self._scheduler,
                optimizer=optimizer,
                total_steps=self._total_steps,
                warmup_fraction=self._warmup_fraction,
                warmup_steps=self._warmup_steps,
                mode=self.objective["mode"],
            )
        if not isinstance(scheduler, ReduceLROnPlateau):
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
        monitor = getattr(scheduler, "monitor", self.objective["metric"])
        if monitor not in self.val_metrics.names:
            raise unknown_metric(monitor, available=self.val_metrics.names)
        return {"optimizer": optimizer, "lr_scheduler": plateau.for_lightning(scheduler, monitor=monitor)}


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Matrices with weight decay; norms and biases, which have one dimension, without."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in parameters if p.ndim >= 2]
    others = [p for p in parameters if p.ndim < 2]
    groups: list[dict[str, Any]] = [{"params": decayed}] if decayed else []
    return [*groups, {"params": others, "weight_decay": 0.0}] if others else groups


def make_scheduler(
    node: Mapping[str, Any],
    *,
    optimizer: torch.optim.Optimizer,
    total_steps: int | None,
    warmup_fraction: float | None = None,
    warmup_steps: int | None = None,
    mode: str = "min",
) -> torch.optim.lr_scheduler.LRScheduler:
    """A schedule over `total_steps`, whatever names its function has for that and for the warm-up.

    Args:
        warmup_steps: Wins over the fraction.
        mode: `min` or `max`: what improves the objective, for a schedule that waits for a plateau and does not say.
    """
    make = instantiate(node, _partial_=True)
    parameters = inspect.signature(make.func).parameters
    needed = _STEP_COUNTS & (parameters.keys() - make.keywords.keys())
    if needed and total_steps is None:
        raise ConfigError(
            f"task.scheduler: {node['_target_']} needs the number of steps; "
            "set trainer.max_epochs or trainer.max_steps (the latter for a stream), or task.scheduler=null"
        )
    total = total_steps or 0
    values: dict[str, Any] = dict.fromkeys(needed, total)
    if warmup_steps is None and warmup_fraction is not None:
        warmup_steps = round(warmup_fraction * total)
    values |= _warm_up(warmup_steps, parameters.keys() - make.keywords.keys(), total=total, target=node["_target_"])
    if "max_lr" in parameters and "max_lr" not in make.keywords:
        values["max_lr"] = [group["lr"] for group in optimizer.param_groups]
    if isinstance(make.func, type) and issubclass(make.func, ReduceLROnPlateau) and "mode" not in make.keywords:
        values["mode"] = mode
    with refused_by("task.scheduler"):
        return make(optimizer, **values)


def _warm_up(n_steps: int | None, parameters: Collection[str], *, total: int, target: str) -> dict[str, Any]:
    """The argument that a schedule has for the warm-up; a fraction that is null leaves it to the schedule."""
    if n_steps and total and n_steps > total:
        raise ConfigError(f"task.warmup_steps: {n_steps}, but the training has {total} steps; use fewer")
    if "num_warmup_steps" in parameters:
        return {"num_warmup_steps": n_steps or 0}
    if n_steps is None:
        return {}
    if "pct_start" in parameters:
        return {"pct_start": n_steps / max(1, total)}
    raise ConfigError(f"task.warmup_fraction: {target} has no warm-up; set it and task.warmup_steps to null")
