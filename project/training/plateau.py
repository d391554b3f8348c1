"""A learning rate that falls when a metric no longer improves, the same on every rank and after an interruption."""

import sys
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightning.pytorch.utilities.types import LRSchedulerConfig
    from torch.optim import Optimizer

INTERVALS = ("validation", "epoch")


class Plateau(ReduceLROnPlateau):
    """torch's `ReduceLROnPlateau` that knows which metric it follows, and when it looks at it.

    Args:
        optimizer: Whose rate falls.
        monitor: A validation metric, such as `val/loss`.
        interval: `validation` looks at each one, `epoch` at the one at the epoch's end alone.
        options: Of `ReduceLROnPlateau`: mode, factor, patience, threshold, cooldown, min_lr.
    """

    def __init__(self, optimizer: "Optimizer", *, monitor: str, interval: str = "validation", **options: Any) -> None:
        if interval not in INTERVALS:
            raise ValueError(f"interval: {interval!r} is neither; use {' or '.join(INTERVALS)}")
        super().__init__(optimizer, **options)
        self.monitor = monitor
        self.interval = interval


def for_lightning(scheduler: ReduceLROnPlateau, *, monitor: str) -> dict[str, Any]:
    """Has Lightning save the schedule and never step it.

    Lightning would step it after the checkpoint of the epoch's end was written, and not at all where one goes on.
    """
    return {"scheduler": scheduler, "interval": "epoch", "frequency": sys.maxsize, "monitor": monitor, "strict": False}


def follow(configs: "list[LRSchedulerConfig]", values: "Mapping[str, float]", *, ends_epoch: bool) -> None:
    """Shows the schedules a validation's metrics, which are the same on all ranks; before the checkpoint after it."""
    for config in configs:
        if not config.reduce_on_plateau or (getattr(config.scheduler, "interval", "") == "epoch" and not ends_epoch):
            continue
        config.scheduler.step(values[str(config.monitor)])
