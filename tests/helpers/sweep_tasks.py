"""Tasks of a sweep's trials, which end as the command line or the environment says."""

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import optuna
from lightning.pytorch.callbacks import Callback

from project.common.managers import get_directory_manager
from project.common.processes.identity import current_identity
from tests.helpers import probe

SLOW = "SLOW_FROM"  # trials from this number on take 0.2 s for a step
Report = Callable[[int, dict[str, float]], None]


def run(
    *,
    report: Report,
    steps: int = 4,
    step_s: float = 0.0,
    given: Any = None,
    returns: Any = None,
    worse: float = 0.0,
    falls: bool = True,
) -> Mapping[str, Any]:
    """Keeps what it was given in `seen.json`, reports `steps` values and returns the last.

    Args:
        report: The rank's.
        steps: 1 or more.
        step_s: Seconds of each.
        given: What is searched.
        returns: The loss that is returned in place of the last one.
        falls: Whether the loss gets better from step to step, or worse.
        worse: By how much each trial is worse than the one before it.
    """
    (get_directory_manager().run_dir / "seen.json").write_text(json.dumps(given))
    loss = 1.0
    for step in range(1, steps + 1):
        time.sleep(max(step_s, 0.2 * is_slow()))
        loss = worse * trial_number() + (1.0 / step if falls else step)
        report(step, {"loss": loss})
        probe.fire(step=step)
    return {"loss": loss if returns is None else returns, "other": 2 * loss}


def is_slow() -> bool:
    """Whether the environment wants this trial to take its time."""
    return trial_number() >= int(os.environ.get(SLOW, "1000000"))


def trial_number() -> int:
    """Of the trial that this process belongs to; 0 outside a sweep."""
    identity = current_identity()
    return (identity.trial if identity is not None else None) or 0


class Spoil(Callback):
    """Makes a model worse before every epoch but the first."""

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch > 0:
            for parameter in pl_module.parameters():
                parameter.data.mul_(-3.0)


class PruneInRank(Callback):
    """Raises Optuna's own exception in one rank.

    Args:
        rank: Which.
        step: When it has done so many.
    """

    def __init__(self, *, rank: int, step: int) -> None:
        self._rank, self._step = rank, step

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        if trainer.global_rank == self._rank and trainer.global_step == self._step:
            raise optuna.TrialPruned("it will not get better")
