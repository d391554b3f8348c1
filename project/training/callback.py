"""The bridge between Lightning's hooks and the process tree: managers, states, heartbeats, stops, random state."""

import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch.callbacks import Checkpoint
from torch import nn

from project.common.errors import ProjectError, PrunedError
from project.common.managers import get_metrics_manager
from project.common.managers.process_init import ensure_process_initialized
from project.common.process_registry import heartbeat, set_state
from project.common.processes.stop import PASSED_ON, StopRequest, StopRequested, raise_if_stop_requested, stop_request
from project.training import speed
from project.training.agreement import Agreement
from project.training.checkpoint import Checkpoints, diverged, ends_epoch, is_accumulating, is_finite, may_save
from project.training.rng import seed_process
from project.training.trial_reports import TrialReports

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from project.training.module import Module

log = logging.getLogger(__name__)

# Logged of single steps: in the history, not in the final metrics.
STEP_METRICS = ("train/loss_step", "train/lr", "train/grad_norm", *speed.NAMES)

# What is kept back for saving and closing when a validation is finished after a stop was requested.
_CLOSING_S = 3.0


class ProcessCallback(Checkpoint):
    """Runs in every rank, never in a worker. A Checkpoint to Lightning only so that it comes after all others: what it
    saves holds their states.

    Args:
        config: The whole configuration, for the managers.
        checkpoints: Saves on a stop and when one is due; None saves nothing.
    """

    def __init__(self, *, config: dict[str, Any], checkpoints: Checkpoints | None) -> None:
        self._config = config
        self._checkpoints = checkpoints
        self._agreement: Agreement | None = None
        self._evaluation: tuple[float, int] = (0.0, 0)
        self._reports = TrialReports()
        self._n_reported = 0
        self._is_pruned = False
        self._is_stepping = False
        self._grad_norm: torch.Tensor | None = None
        self._clock = speed.StepClock()

    def setup(self, trainer: "Trainer", pl_module: "Module", stage: str) -> None:
        ensure_process_initialized(self._config)
        leave_signals_alone(trainer)
        self._agreement = self._agreement or Agreement(trainer.world_size)
        raise_if_stop_requested()

    def state_dict(self) -> dict[str, Any]:
        return {"n_reported": self._n_reported}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._n_reported = state_dict["n_reported"]

    def on_load_checkpoint(self, trainer: "Trainer", pl_module: "Module", checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn == "fit":
            get_metrics_manager().continue_from(checkpoint["global_step"])

    def on_train_start(self, trainer: "Trainer", pl_module: "Module") -> None:
        set_state("waiting for data")
        heartbeat(trainer.global_step)
        self._clock.start()

    def on_train_batch_start(self, trainer: "Trainer", pl_module: "Module", batch: Any, batch_idx: int) -> None:
        self._clock.spend("data", n_rows=len(next(iter(batch.values()))))
        set_state("training")  # the first one ends the start of the run, which the benchmark measures
        self._is_stepping = False
        seed_process(self._config["seed"], trainer.global_rank, trainer.current_epoch, batch_idx)

    def on_train_epoch_start(self, trainer: "Trainer", pl_module: "Module") -> None:
        trainer.datamodule.start_epoch(trainer.current_epoch)

    def on_before_optimizer_step(self, trainer: "Trainer", pl_module: "Module", optimizer: Any) -> None:
        self._is_stepping = True
        if (trainer.global_step + 1) % trainer.log_every_n_steps == 0:
            # Before it is clipped.
            self._grad_norm = nn.utils.get_total_norm([p.grad for p in pl_module.parameters() if p.grad is not None])

    def on_train_batch_end(
        self, trainer: "Trainer", pl_module: "Module", outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._is_stepping = False
        heartbeat(trainer.global_step)
        if _is_log_step(trainer):
            self._log_step(trainer, pl_module, loss=outputs["loss"])
        self._clock.spend("compute")
        self._save_or_stop(trainer, pl_module)
        self._clock.spend("logging")

    def _log_step(self, trainer: "Trainer", module: "Module", *, loss: torch.Tensor) -> None:
        loss = trainer.strategy.reduce(loss.detach(), reduce_op="mean")
        values = {"train/loss_step": float(loss), "train/lr": trainer.optimizers[0].param_groups[0]["lr"]}
        if self._grad_norm is not None:
            values["train/grad_norm"] = float(self._grad_norm)
        self._clock.spend("compute")
        module.write(values | self._clock.values())
        if not math.isfinite(loss):
            self._refuse_divergence(trainer, module)
        self._clock.spend("logging")

    def _save_or_stop(self, trainer: "Trainer", pl_module: "Module") -> None:
        if not may_save(trainer):
            return
        is_due = self._checkpoints is not None and self._checkpoints.is_due(trainer.global_step)
        self._obey(trainer, pl_module, is_due=is_due)

    def on_train_end(self, trainer: "Trainer", pl_module: "Module") -> None:
        if trainer.is_global_zero and self._clock.n_rows:
            log.info("%s", self._clock.summary())

    def on_train_epoch_end(self, trainer: "Trainer", pl_module: "Module") -> None:
        self._clock.spend("logging")  # and saving: `Checkpoints` comes before
        self._refuse_divergence(trainer, pl_module)
        # `Checkpoints` has just saved.
        self._obey(trainer, pl_module, is_due=False, is_saved=True)

    def _refuse_divergence(self, trainer: "Trainer", module: "Module") -> None:
        """A loss that is no number may be one batch's; weights that are none stay so."""
        if is_finite(module):
            return
        if self._checkpoints is not None:
            self._checkpoints.save(trainer, module)  # raises, too, and keeps them to be looked at
        raise diverged(trainer.global_step)

    def _obey(self, trainer: "Trainer", module: "Module", *, is_due: bool, is_saved: bool = False) -> None:
        assert self._agreement is not None, "setup comes first"
        request = stop_request()
        wish = max(1, request.exit_code) if request else 0
        decision = self._agreement.decide(
            trainer.global_step, exit_code=wish, save=is_due, prune=self._is_pruned, must=is_saved
        )
        if (decision.save or decision.exit_code) and self._checkpoints is not None and not is_saved:
            self._checkpoints.save(trainer, module)
        if decision.exit_code:
            raise StopRequested(request or _passed_on(decision.exit_code))
        if decision.prune:
            raise PrunedError(f"pruned at step {trainer.global_step}, after {self._n_reported} values")

    def on_validation_start(self, trainer: "Trainer", pl_module: "Module") -> None:
        self._start_evaluation("validating")
        self._clock.pause()
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._n_reported += 1  # before the checkpoint of this validation is saved

    def on_test_start(self, trainer: "Trainer", pl_module: "Module") -> None:
        self._start_evaluation("testing")

    def _start_evaluation(self, state: str) -> None:
        set_state(state)
        self._evaluation = (time.monotonic(), 0)

    def on_validation_batch_end(
        self, trainer: "Trainer", pl_module: "Module", outputs: Any, batch: Any, batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        heartbeat(trainer.global_step)
        request = stop_request()
        if request is None:
            return
        started, _ = self._evaluation
        per_batch = (time.monotonic() - started) / (batch_idx + 1)
        n_left = sum(trainer.num_val_batches) - batch_idx - 1
        if trainer.state.fn != "fit" or n_left * per_batch > request.seconds_left() - _CLOSING_S:
            log.info("validation would take too long: going on later from the checkpoint before it")
            raise StopRequested(request)

    def on_test_batch_end(
        self, trainer: "Trainer", pl_module: "Module", outputs: Any, batch: Any, batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        heartbeat(trainer.global_step)
        raise_if_stop_requested()

    def on_validation_end(self, trainer: "Trainer", pl_module: "Module") -> None:
        set_state("training")
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        self._clock.start()
        value = trainer.callback_metrics.get(self._config["objective"]["metric"])
        if value is not None:
            self._is_pruned = self._reports.report(float(value), step=self._n_reported)
        if not ends_epoch(trainer) and not is_accumulating(trainer):
            # `Checkpoints` has just saved.
            self._obey(trainer, pl_module, is_due=False, is_saved=True)

    def on_exception(self, trainer: "Trainer", pl_module: "Module", exception: BaseException) -> None:
        """Saves what was reached before a failing step. Alone only: other ranks would not come to save with us."""
        if isinstance(exception, (StopRequested, ProjectError)) or trainer.world_size > 1 or self._checkpoints is None:
            return
        loop = trainer.fit_loop.epoch_loop
        done = loop.batch_progress.current.processed
        is_between = done > 0 and done % trainer.accumulate_grad_batches == 0 and not self._is_stepping
        if trainer.training and is_between and not ends_epoch(trainer):
            with contextlib.suppress(ProjectError):  # the failure itself is what has to be reported
                self._checkpoints.save(trainer, pl_module)


def _is_log_step(trainer: "Trainer") -> bool:
    return not is_accumulating(trainer) and trainer.global_step % trainer.log_every_n_steps == 0


def _passed_on(exit_code: int) -> StopRequest:
    return StopRequest(reason=PASSED_ON, exit_code=exit_code, deadline=time.monotonic() + 10)


def leave_signals_alone(trainer: "Trainer") -> None:
    """Keeps Lightning's signal handlers out: its one for SIGTERM calls a collective inside the handler.

    Its broadcast of a flag before every step, which listens to rank 0 only, goes with it: `Agreement` does that.
    """
    connector, loop = trainer._signal_connector, trainer.fit_loop.epoch_loop
    for owner, attribute in ((connector, "register_signal_handlers"), (loop, "_broadcast_sigterm_tensor")):
        if not hasattr(owner, attribute):
            raise RuntimeError(f"lightning: {type(owner).__name__}.{attribute} is gone; see where its handlers moved")
        setattr(owner, attribute, _do_nothing)


def _do_nothing() -> None:
    pass
