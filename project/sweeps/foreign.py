"""Trials under another launcher than ours: in batches, with that launcher's own guarantees."""

import json
import logging
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from optuna.trial import Trial

from project.common.files.layout import RunLayout
from project.common.processes import stop
from project.common.processes.outcome import Outcome, Status, outcome_of
from project.sweeps.trials import Trials

log = logging.getLogger(__name__)


def run_in_batches(trials: Trials, launcher: Launcher) -> None:
    """Claims as many trials as run at once, launches them, waits for all, tells all, and so on.

    Its jobs cannot be pruned, limited or shown; each still starts a process tree of its own for its training.
    """
    log.warning(
        "%s runs trials in batches and has its own guarantees; hydra/launcher=trials fills free slots at once, prunes, "
        "leases devices and ends each trial by itself",
        type(launcher).__name__,
    )
    while batch := _claim(trials):
        _run(trials, launcher, batch)
        if trials.is_refused or trials.fails_too_often or stop.stop_request() is not None:
            break


def _claim(trials: Trials) -> list[Trial]:
    batch: list[Trial] = []
    while len(batch) < trials.settings.n_jobs and (trial := trials.claim()) is not None:
        trials.make_folder(trial)
        batch.append(trial)
    return batch


def _run(trials: Trials, launcher: Launcher, batch: list[Trial]) -> None:
    # The launcher numbers its jobs by itself; folders go by the trials' numbers.
    overrides = [(*trials.overrides(trial), f"hydra.sweep.subdir={trial.number}") for trial in batch]
    outcome: Outcome | None = None
    returned: list[JobReturn | None] = [None] * len(batch)
    try:
        returned = list(launcher.launch(overrides, initial_job_idx=batch[0].number))
    except (Exception, SystemExit, KeyboardInterrupt, stop.StopRequested) as error:
        outcome = outcome_of(error)
        _tell(trials, batch, returned, outcome)
        stop.raise_if_stop_requested()
        raise
    _tell(trials, batch, returned, outcome)


def _tell(trials: Trials, batch: list[Trial], returned: list[JobReturn | None], outcome: Outcome | None) -> None:
    for trial, one in zip(batch, returned, strict=True):
        ended = _with_request(outcome or _outcome(one))
        value = one._return_value if one is not None and ended.status is Status.COMPLETED else None
        said = _said(trials.folder(trial))
        trials.end(trial, ended, value=value, result=said.get("result"), seconds=said.get("seconds", 0.0))


def _with_request(outcome: Outcome) -> Outcome:
    """What fails once this process was asked to stop has been asked, too."""
    request = stop.stop_request()
    if request is None or outcome.status is not Status.CRASHED:
        return outcome
    return Outcome(status=Status.INTERRUPTED, exit_code=request.exit_code, cause=request.reason)


def _said(folder: Path) -> dict[str, Any]:
    """What the job's own main process has written about its end; nothing when it could not."""
    try:
        said: dict[str, Any] = json.loads(RunLayout(folder).outcome.read_text())
    except (OSError, ValueError):
        return {}
    return said


def _outcome(returned: JobReturn | None) -> Outcome:
    value: Any = returned._return_value if returned is not None else None
    if returned is not None and returned.status is JobStatus.COMPLETED:
        return Outcome(status=Status.COMPLETED, exit_code=0)
    return outcome_of(value if isinstance(value, BaseException) else RuntimeError("the launcher says nothing of it"))
