"""An exponential moving average of the weights (Polyak & Juditsky 1992), which is what is validated and kept."""

from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from project.training.module import Module

_KEY = "weights_in_training"


class EMA(Callback):
    """Averages the weights after each optimizer step.

    Validation and test see the average, and checkpoints hold it where weights are expected, so that whatever opens
    them has it too; beside it they hold the weights in training, from which going on is exact. Buffers, such as the
    statistics of batch normalisation, are not averaged.

    Args:
        decay: Share of the old average in the new one. It rises to this from 1/11, as (1 + n) / (10 + n) after n steps,
            so that the first weights are soon forgotten.
    """

    def __init__(self, *, decay: float = 0.999) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay: {decay} is no share of the old average; use 0 or more, and less than 1")
        self._decay = decay
        self._n_updates = 0
        self._last_step = 0
        self._average: dict[str, Tensor] = {}
        self._training: dict[str, Tensor] | None = None  # set aside while the module has the average

    def state_dict(self) -> dict[str, Any]:
        return {"n_updates": self._n_updates, "last_step": self._last_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._n_updates, self._last_step = state_dict["n_updates"], state_dict["last_step"]

    def on_save_checkpoint(self, trainer: "Trainer", pl_module: "Module", checkpoint: dict[str, Any]) -> None:
        if not self._average:  # nothing was trained
            return
        in_training = self._training if self._training is not None else _weights(pl_module)
        checkpoint[_KEY] = {name: weight.detach().clone() for name, weight in in_training.items()}
        names = {weight: name for name, weight in pl_module.named_parameters()}
        # A weight that is used twice is stored under both names.
        averaged = {
            name: self._average[names[weight]]
            for name, weight in pl_module.named_parameters(remove_duplicate=False)
            if names[weight] in self._average
        }
        checkpoint["state_dict"] = dict(checkpoint["state_dict"]) | averaged

    def on_load_checkpoint(self, trainer: "Trainer", pl_module: "Module", checkpoint: dict[str, Any]) -> None:
        """The module has the average by now; a checkpoint without one gives both."""
        if trainer.state.fn != "fit":
            return
        self._average = {name: weight.detach().clone() for name, weight in _weights(pl_module).items()}
        _load(pl_module, checkpoint.get(_KEY, {}))

    def on_train_start(self, trainer: "Trainer", pl_module: "Module") -> None:
        weights = _weights(pl_module)
        known = self._average or weights
        self._average = {name: known[name].detach().clone().to(weight.device) for name, weight in weights.items()}
        self._last_step = trainer.global_step

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: "Trainer", pl_module: "Module", outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self._last_step:  # gradients are accumulated
            return
        self._last_step = trainer.global_step
        decay = min(self._decay, (1 + self._n_updates) / (10 + self._n_updates))
        self._n_updates += 1
        for name, weight in _weights(pl_module).items():
            self._average[name].lerp_(weight, 1 - decay)

    def on_validation_start(self, trainer: "Trainer", pl_module: "Module") -> None:
        if self._average and trainer.state.fn == "fit":
            self._training = {name: weight.detach().clone() for name, weight in _weights(pl_module).items()}
            _load(pl_module, self._average)

    def on_validation_end(self, trainer: "Trainer", pl_module: "Module") -> None:
        self._take_up_training(pl_module)

    def on_exception(self, trainer: "Trainer", pl_module: "Module", exception: BaseException) -> None:
        self._take_up_training(pl_module)

    def _take_up_training(self, module: "Module") -> None:
        if self._training is not None:
            _load(module, self._training)
            self._training = None

    def on_train_end(self, trainer: "Trainer", pl_module: "Module") -> None:
        _load(pl_module, self._average)


def _weights(module: "Module") -> dict[str, Tensor]:
    """The trained weights, under their names in a checkpoint."""
    return {name: weight for name, weight in module.named_parameters() if weight.requires_grad}


@torch.no_grad()
def _load(module: "Module", weights: dict[str, Tensor]) -> None:
    own = dict(module.named_parameters())
    for name, weight in weights.items():
        own[name].copy_(weight)
