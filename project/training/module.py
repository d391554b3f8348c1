"""The LightningModule: one model in the convention of transformers, its optimizer and schedule, and exact metrics."""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from project.common.errors import ConfigError
from project.common.managers import get_metrics_manager
from project.common.whitelist import instantiate

if TYPE_CHECKING:
    from lightning.pytorch.utilities.types import OptimizerLRScheduler

SPLITS = ("train", "val", "test")
_NOT_FOR_THE_MODEL = frozenset({"row", "length"})


class Module(LightningModule):
    """Trains a model whose `forward(**inputs)` returns `.loss` and `.logits`.

    Args:
        model: Built by the model manager.
        optimizer: Node of a torch optimizer; gets the parameters in two groups, norms and biases without decay.
        scheduler: Node of a schedule, stepped with the optimizer, or None for a constant rate. The number of steps and
            the warm-up reach it under the names that it has for them.
        warmup_fraction: Share of all steps in which the learning rate rises; None leaves it to the schedule.
        n_labels: Classes, for the metrics; None when rows have no label.
        total_steps: Optimizer steps of the whole training; None when there is no end to them.

    Attributes:
        predictions: A list keeps what testing predicts; None keeps nothing.
        latest: Split to its metrics when they were last computed.
        facts: Plain data that goes into every checkpoint.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        optimizer: Mapping[str, Any],
        scheduler: Mapping[str, Any] | None,
        warmup_fraction: float | None,
        n_labels: int | None,
        total_steps: int | None,
    ) -> None:
        super().__init__()
        assert not any(p.is_shared() for p in model.parameters()), "another process shares these weights, both write"
        metrics = get_metrics_manager()
        self.model = model
        self.losses = nn.ModuleDict({f"{split}_loss": metrics.mean() for split in SPLITS})
        self.scores = nn.ModuleDict(
            {f"{split}_scores": metrics.collection(split, n_labels=n_labels) for split in SPLITS}
        )
        self.predictions: list[dict[str, Tensor]] | None = None
        self.latest: dict[str, dict[str, float]] = {}
        self.facts: dict[str, Any] = {}
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._warmup_fraction = warmup_fraction
        self._total_steps = total_steps

    def forward(self, **inputs: Tensor) -> Any:
        return self.model(**inputs)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        return self._step(batch, "train").loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self._step(batch, "val")

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        outputs = self._step(batch, "test")
        if self.predictions is not None:
            probabilities = outputs.logits.float().softmax(dim=-1)
            kept = {"row": batch["row"], "label": batch["labels"], "probabilities": probabilities}
            self.predictions.append({name: value.cpu() for name, value in kept.items()})

    def _step(self, batch: Mapping[str, Tensor], split: str) -> Any:
        outputs = self.model(**{name: value for name, value in batch.items() if name not in _NOT_FOR_THE_MODEL})
        labels = batch["labels"]
        self.losses[f"{split}_loss"].update(outputs.loss.detach(), weight=n_targets(labels))
        scores = self.scores[f"{split}_scores"]
        if len(scores):
            scores.update(outputs.logits.detach(), labels)
        return outputs

    def on_train_epoch_end(self) -> None:
        self._log_epoch("train")

    def on_validation_epoch_end(self) -> None:
        self._log_epoch("val")

    def on_test_epoch_end(self) -> None:
        self._log_epoch("test")

    def _log_epoch(self, split: str) -> None:
        loss, scores = self.losses[f"{split}_loss"], self.scores[f"{split}_scores"]
        values = {f"{split}/loss": loss.compute(), **scores.compute()}
        loss.reset()
        scores.reset()
        scalars = {name: value for name, value in values.items() if value.numel() == 1}
        # Already one number for all ranks: torchmetrics gathered the sums.
        self.log_dict(scalars, logger=False)
        self.latest[split] = {name: value.item() for name, value in scalars.items()}
        self.write(self.latest[split])

    def write(self, values: Mapping[str, float]) -> None:
        """Logs at once. Lightning does so after the hooks that save checkpoints: a kill between would lose the values."""
        for logger in self.loggers:
            logger.log_metrics({"epoch": self.current_epoch, **values}, step=self.global_step)

    @property
    def metric_names(self) -> list[str]:
        """Everything that will be logged of the validation and training splits."""
        return [f"{split}/loss" for split in SPLITS[:2]] + [
            name for split in SPLITS[:2] for name in self.scores[f"{split}_scores"]
        ]

    def configure_optimizers(self) -> "OptimizerLRScheduler":
        optimizer = instantiate(self._optimizer, _partial_=True)(parameter_groups(self.model))
        if self._scheduler is None:
            return optimizer
        scheduler = make_scheduler(
            self._scheduler,
            optimizer=optimizer,
            total_steps=self._total_steps,
            warmup_fraction=self._warmup_fraction,
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def metric_states(self) -> dict[str, dict[str, Any]]:
        """Sums of this rank's unfinished training epoch, as plain tensors."""
        return {
            name: {"count": metric._update_count} | {key: _copied(value) for key, value in metric.metric_state.items()}
            for name, metric in self._training_metrics()
        }

    def load_metric_states(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """The inverse of `metric_states`."""
        for name, metric in self._training_metrics():
            for key, value in states.get(name, {}).items():
                if key == "count":
                    metric._update_count = value
                else:
                    setattr(metric, key, _copied(value, device=metric.device))

    def _training_metrics(self) -> list[tuple[str, Any]]:
        scores = self.scores["train_scores"]
        return [("loss", self.losses["train_loss"]), *scores.items(keep_base=True)]


def _copied(value: Any, *, device: Any = None) -> Any:
    if isinstance(value, list):
        return [_copied(item, device=device) for item in value]
    return value.detach().clone().to(device) if device is not None else value.detach().clone()


def n_targets(labels: Tensor) -> int | Tensor:
    """What a batch's mean loss is a mean over: rows, or the tokens that a language model predicts."""
    return len(labels) if labels.dim() == 1 else (labels[:, 1:] != -100).sum()


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
) -> torch.optim.lr_scheduler.LRScheduler:
    """A schedule over `total_steps`, whatever names its function has for that and for the warm-up."""
    make = instantiate(node, _partial_=True)
    parameters = inspect.signature(make.func).parameters
    needed = {"num_training_steps", "total_steps", "T_max", "num_warmup_steps"} & parameters.keys() - make.keywords.keys()
    if needed and total_steps is None:
        raise ConfigError(
            f"task.scheduler: {node['_target_']} needs the number of steps; set trainer.max_epochs or trainer.max_steps, "
            "or task.scheduler=null"
        )
    total = total_steps or 0
    values: dict[str, Any] = dict.fromkeys(needed, total)
    if "num_warmup_steps" in needed:
        values["num_warmup_steps"] = round((warmup_fraction or 0.0) * total)
    elif warmup_fraction is not None and "pct_start" in parameters:
        values["pct_start"] = warmup_fraction
    elif warmup_fraction is not None:
        raise ConfigError(f"task.warmup_fraction: {node['_target_']} has no warm-up; set it to null")
    if "max_lr" in parameters and "max_lr" not in make.keywords:
        values["max_lr"] = [group["lr"] for group in optimizer.param_groups]
    return make(optimizer, **values)
