"""What a rank does: managers, data, model, training, and one plain record of the result."""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import EarlyStopping

from project.common.errors import ProjectError, PrunedError
from project.common.files.atomic import write_json
from project.common.managers import (
    get_batch_manager,
    get_cuda_manager,
    get_data_manager,
    get_directory_manager,
    get_metrics_manager,
    get_model_manager,
    get_wandb_manager,
)
from project.common.managers.metrics import unknown_metric
from project.common.managers.process_init import ensure_process_initialized
from project.common.process_registry import heartbeat, set_state
from project.common.processes.handover import own_sweep
from project.common.processes.identity import Identity, current_identity
from project.common.processes.stop import StopRequested, raise_if_stop_requested
from project.common.whitelist import instantiate
from project.training import stream
from project.training.at_end import run_at_end
from project.training.baselines import baseline_metrics
from project.training.build import (
    instantiate_all,
    lightning_refuses,
    make_loggers,
    make_module,
    make_trainer,
    quiet_libraries,
    refuse_late_validation,
)
from project.training.callback import STEP_METRICS, ProcessCallback
from project.training.checkpoint import Checkpoints
from project.training.datamodule import DataModule, optimizer_steps
from project.training.early_end import ended_early
from project.training.environment import process_group
from project.training.evenness import require_even
from project.training.report import table_rows
from project.training.rng import seed_process
from project.training.trial_reports import TrialReports

log = logging.getLogger(__name__)

# The group's own limit when no stall watch is set. With one, the watch names the rank long before the group gives up.
_GROUP_TIMEOUT_S = 1800.0
_GROUP_PATIENCE = 2.0


def run_rank(config: dict[str, Any]) -> dict[str, Any]:
    """Trains in this process, whose identity is a rank; the others of its group do the same.

    Returns:
        Plain data: `metrics`, `rows` of the final table, `best_checkpoint`, `last_checkpoint`, `epoch`, `step`,
        `stop_reason`, `train_s`.
    """
    quiet_libraries()
    ensure_process_initialized(config)
    set_state("building managers")
    wandb = get_wandb_manager()  # a missing key is found before the data is prepared
    exit_code, state = 1, None
    try:
        record = _run_function(config) if config["task"]["run"] is not None else _run_training(config)
        exit_code = 0
        return record
    except (Exception, StopRequested) as error:
        if isinstance(error, StopRequested):
            exit_code = error.request.exit_code
        if ended_early(error):  # as the sweep wished: no failure, and what was reached counts
            exit_code, state = 0, "pruned"
            metrics = get_metrics_manager()
            metrics.write_final({k: v for k, v in metrics.values_at(None).items() if k not in STEP_METRICS})
        raise
    finally:
        set_state("closing")
        wandb.finish(exit_code, state=state)


def _run_function(config: dict[str, Any]) -> dict[str, Any]:
    """A task without Lightning: one function, told how to report."""
    loggers = make_loggers(config)
    last_step, n_reported = 0, 0
    reports, objective = TrialReports(), config["objective"]["metric"]

    def report(step: int, metrics: Mapping[str, float]) -> None:
        nonlocal last_step, n_reported
        last_step = step
        heartbeat(step)
        reports.progress(epoch=0, n_done=step, n=None)
        for logger in loggers:
            logger.log_metrics(dict(metrics), step=step)
        if objective in metrics:
            n_reported += 1
            if reports.report(float(metrics[objective]), step=n_reported):
                raise PrunedError(f"pruned at step {step}, after {n_reported} values")
        raise_if_stop_requested()

    started = time.monotonic()
    seed_process(config["seed"])
    set_state("training")
    function: Callable[..., Mapping[str, float]] = instantiate(config["task"]["run"], _partial_=True)
    metrics = {name: _number(name, value) for name, value in function(report=report).items()}
    for logger in loggers:
        logger.log_metrics(metrics, step=last_step)
        logger.finalize("success")
    get_metrics_manager().write_final(metrics)
    train_s = time.monotonic() - started
    return _record(metrics, name=config["name"], step=last_step, stop_reason="returned", train_s=train_s)


def _number(name: str, value: Any) -> float:
    try:
        if not isinstance(value, str):
            return float(value)
    except (TypeError, ValueError, RuntimeError):  # the last is torch's, for several numbers
        pass
    raise ProjectError(f"task.run: {name} is {value!r} ({type(value).__name__}), which is no number")


def _run_training(config: dict[str, Any]) -> dict[str, Any]:
    identity = current_identity()
    assert identity is not None, "a rank knows that it is one"
    cuda = get_cuda_manager()
    group = process_group(
        identity,
        run_dir=get_directory_manager().run_dir,
        has_cuda=cuda.accelerator == "cuda",
        timeout_s=(config["processes"]["stall_timeout_s"] or 0.0) * _GROUP_PATIENCE or _GROUP_TIMEOUT_S,
    )
    with group:
        return Training(config, identity).run()


class Training:
    """One training of one rank, from the configuration to the record.

    Args:
        config: Resolved, plain.
        identity: This rank's.
    """

    def __init__(self, config: dict[str, Any], identity: Identity) -> None:
        self._config = config
        self._identity = identity
        raise_if_stop_requested()
        set_state("preparing data")
        get_data_manager().prepare()
        raise_if_stop_requested()
        set_state("building the model")
        if get_data_manager().is_streamed:
            stream.check_settings(config)
        self.datamodule = DataModule(loader=config["loader"], seed=config["seed"])
        require_even(self.datamodule.facts(), world_size=identity.world_size)
        self.accumulation = get_batch_manager().accumulation(identity.world_size)
        refuse_late_validation(config["trainer"], n_batches=len(self.datamodule.train_sampler))
        self.module = make_module(config, total_steps=self._total_steps())
        self._check_objective()
        if not get_data_manager().is_streamed:
            get_batch_manager().refuse_single_rows(self.module, self.datamodule.train_sampler)
        callbacks = instantiate_all("callbacks", config["callbacks"])
        self.checkpoints = next((callback for callback in callbacks if isinstance(callback, Checkpoints)), None)
        callbacks.append(ProcessCallback(config=config, checkpoints=self.checkpoints))
        self.trainer = make_trainer(
            config, identity=identity, callbacks=callbacks, loggers=make_loggers(config), accumulation=self.accumulation
        )

    def _check_objective(self) -> None:
        module = self.module
        names = [n for m in (module.train_metrics, module.val_metrics, module.test_metrics) for n in m.names]
        sweep = own_sweep()
        swept = sweep.metrics if sweep is not None else ()
        wanted = [("objective.metric", self._config["objective"]["metric"])]
        for key, metric in wanted + [("hydra.sweeper.metrics", metric) for metric in swept]:
            if metric not in names:
                raise unknown_metric(metric, available=names, key=key)

    def _total_steps(self) -> int | None:
        n_batches = self.datamodule.n_batches
        return optimizer_steps(n_batches=n_batches, accumulation=self.accumulation, trainer=self._config["trainer"])

    def run(self) -> dict[str, Any]:
        """Trains, evaluates the checkpoint that is kept, and sums up."""
        started = time.monotonic()
        with lightning_refuses():
            self.trainer.fit(self.module, datamodule=self.datamodule, ckpt_path=self._start_from())
        train_s = time.monotonic() - started
        epoch, step = self.trainer.current_epoch, self.trainer.global_step
        self._ensure_validated()
        kept = self._kept_checkpoint()
        metrics = self._metrics_of_kept()
        if self._config["task"]["test"] and get_data_manager().n_rows("test"):
            metrics |= self._test(kept)
        get_metrics_manager().write_final(metrics)
        if self._identity.rank == 0 and not self.trainer.fast_dev_run:
            self._take(kept)
            run_at_end(self._config["task"]["at_end"], model=self.module.model)
        return _record(
            metrics,
            name=type(self.module.model).__name__,
            others=baseline_metrics(self._config["task"]["baselines"], step=step) if self._identity.rank == 0 else {},
            step=step,
            epoch=epoch,
            stop_reason=self._stop_reason(),
            train_s=train_s,
            checkpoints=self.checkpoints,
        )

    def _start_from(self) -> Path | None:
        """The checkpoint to go on from: this run's own after an interruption, else the one that was asked for."""
        models = get_model_manager()
        path = models.newest_intact() if self._identity.attempt > 1 else None
        if path is None and self._config["ckpt_path"] is not None:
            path = Path(self._config["ckpt_path"])
        if path is None:
            get_metrics_manager().continue_from(-1)
            return None
        state = models.load(path)
        models.check_fits(self.module, state.get("state_dict", {}), path=path)
        log.info("goes on from %s, step %s", path, state.get("global_step"))
        return path

    def _ensure_validated(self) -> None:
        """A training that ended before its first validation has an objective, too."""
        if self.trainer.fast_dev_run or not get_data_manager().n_rows("val"):
            return
        if self._config["objective"]["metric"] not in get_metrics_manager().names:
            self.trainer.validate(self.module, datamodule=self.datamodule, verbose=False)

    def _kept_checkpoint(self) -> Path | None:
        if self.checkpoints is None or self.checkpoints.best_step < 0:
            return None
        return self.checkpoints.best_path

    def _metrics_of_kept(self) -> dict[str, float]:
        step = self.checkpoints.best_step if self.checkpoints is not None else -1
        values = get_metrics_manager().values_at(step if step >= 0 else None)
        return {name: value for name, value in values.items() if name not in STEP_METRICS}

    def _test(self, kept: Path | None) -> dict[str, float]:
        self._take(kept)
        self.trainer.test(self.module, datamodule=self.datamodule, verbose=False)
        counts = self.module.test_metrics.counts
        if self._identity.rank == 0 and counts is not None and not self.trainer.fast_dev_run:
            told = {"split": "test", "labels": get_data_manager().labels, "counts": counts}
            write_json(get_directory_manager().layout.confusion, told)
        return self.module.latest.get("test", {})  # none with trainer.limit_test_batches=0

    def _take(self, kept: Path | None) -> None:
        if kept is not None:
            self.module.load_state_dict(get_model_manager().load(kept)["state_dict"])

    def _stop_reason(self) -> str:
        stoppers = [c for c in self.trainer.callbacks if isinstance(c, EarlyStopping) and c.stopped_epoch]
        if stoppers:
            return f"{stoppers[0].monitor} stopped improving"
        if 0 <= self.trainer.max_steps <= self.trainer.global_step:
            return "trainer.max_steps reached"
        if self.trainer.max_epochs is not None and 0 <= self.trainer.max_epochs <= self.trainer.current_epoch:
            return "trainer.max_epochs reached"
        return "trainer.max_time reached" if self._config["trainer"]["max_time"] else "stopped by a callback"


def _record(
    metrics: Mapping[str, float],
    *,
    step: int,
    stop_reason: str,
    train_s: float,
    name: str,
    others: Mapping[str, float] | None = None,
    epoch: int = 0,
    checkpoints: Checkpoints | None = None,
) -> dict[str, Any]:
    best = checkpoints.best_path if checkpoints is not None and checkpoints.best_step >= 0 else None
    last = checkpoints.last_path if checkpoints is not None else None
    return {
        "metrics": dict(metrics),
        "rows": table_rows({**metrics, **(others or {})}, name=name),
        "best_checkpoint": str(best) if best is not None and best.exists() else None,
        "last_checkpoint": str(last) if last is not None and last.exists() else None,
        "epoch": epoch,
        "step": step,
        "stop_reason": stop_reason,
        "train_s": round(train_s, 3),
    }
