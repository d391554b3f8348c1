"""The trials of one sweep from claim to end, whoever runs them: their points, folders, endings and refusals."""

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from optuna.trial import FrozenTrial, Trial, TrialState

from project.common.errors import ConfigError, ProjectError
from project.common.files.layout import RunLayout
from project.common.processes.outcome import Outcome, Status
from project.sweeps.continuing import say_unclosed, take_along
from project.sweeps.jobs.endings import write_end
from project.sweeps.search.search_space import SearchSpace
from project.sweeps.settings import SweepSettings
from project.sweeps.shown.summary import best_trials
from project.sweeps.study.study_store import StudyStore
from project.sweeps.study.trial_book import CLONE_OF, CONTINUES, END, REPEATS, RUN, TRIES
from project.sweeps.values import objectives
from project.training import report

log = logging.getLogger(__name__)


class Trials:
    """Begins and ends trials in the study.

    Args:
        store: The study.
        space: What is searched.
        settings: The sweeper's.
        config: The sweep's own configuration, for custom search spaces.
        n_trials: In the end.
    """

    def __init__(
        self, *, store: StudyStore, space: SearchSpace, settings: SweepSettings, config: DictConfig, n_trials: int
    ) -> None:
        self.store, self.space, self.settings, self.n_trials = store, space, settings, n_trials
        self._config = config
        self._has_begun_well = False
        self._refusal: ConfigError | None = None
        self.n_failed, self.n_ended, self.last_cause = 0, 0, ""
        self.last_values: list[float] | None = None
        self._repeated: dict[int, FrozenTrial] = {}  # by number of a trial, the completed one with its point

    def claim(self) -> Trial | None:
        """A trial to run; None when enough have ended or are running.

        With `skip_repeated` those whose point has a value are completed with it on the way.
        """
        while (trial := self.store.claim(self.n_trials, self._suggest)) is not None:
            completed = self._repeated.pop(trial.number, None)
            if completed is None:
                return trial
            self._take_value(trial, completed)
        return None

    def _suggest(self, trial: Trial) -> dict[str, Any]:
        params = self.space.suggest(trial, self._config)
        folder = self.store.sweep_dir / str(trial.number)
        run = {"folder": str(folder), "overrides": list(self.space.overrides(params))}
        completed = self._completed_at(params) if self.settings.skip_repeated else None
        if completed is None:
            return run
        # Should this process be killed now, the next start reads the value in that folder.
        self._repeated[trial.number] = completed
        return run | {"folder": str(self._folder_of(completed.number)), REPEATS: completed.number}

    def _completed_at(self, params: dict[str, Any]) -> FrozenTrial | None:
        trials = self.store.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return next((it for it in trials if it.params == params and REPEATS not in it.user_attrs.get(RUN, {})), None)

    def _take_value(self, trial: Trial, completed: FrozenTrial) -> None:
        end = completed.user_attrs.get(END, {})
        facts = {"cause": None, "checkpoint": end.get("checkpoint"), "seconds": 0.0, "exit_code": 0}
        self.store.complete(trial, completed.values, facts | {"ended": time.time()})
        self.n_ended += 1
        log.info("trial %d repeats trial %d: it takes over its value and is not run", trial.number, completed.number)

    def folder(self, trial: Trial) -> Path:
        """The trial's folder: its number."""
        return self.store.sweep_dir / str(trial.number)

    def overrides(self, trial: Trial) -> tuple[str, ...]:
        """All of the trial's overrides; not from the study, where secrets are masked."""
        return self.space.overrides(trial.params)

    def make_folder(self, trial: Trial) -> int:
        """Makes the trial's folder, with the checkpoint that it goes on from; returns its attempt.

        Raises:
            ProjectError: There is something of this name already.
        """
        folder = self.folder(trial)
        try:
            folder.mkdir(parents=True)
        except FileExistsError as error:
            if not folder.is_dir() or any(folder.iterdir()):
                raise ProjectError(f"{folder}: belongs to no trial of this study; move it away") from error
        if (replaced := trial.user_attrs.get(CLONE_OF)) is not None:
            say_unclosed(self._folder_of(replaced))
        number = trial.user_attrs.get(CONTINUES)
        return 1 if number is None else take_along(self._folder_of(number), folder)

    def _folder_of(self, number: int) -> Path:
        trials = self.store.study.get_trials(deepcopy=False)
        beside = self.store.sweep_dir / str(number)
        recorded = next((trial.user_attrs[RUN]["folder"] for trial in trials if trial.number == number), beside)
        return Path(recorded) if Path(recorded).is_dir() else beside

    def end(
        self,
        trial: Trial,
        outcome: Outcome,
        *,
        value: Any,
        result: dict[str, Any] | None,
        seconds: float,
        is_nobodys_fault: bool = False,
    ) -> Outcome:
        """Keeps how a trial ended, in its folder first and then in the study; returns how it counts.

        Args:
            value: What its task function returned.
            result: A training's record.
            is_nobodys_fault: It crashed with the process server.
        """
        outcome, values = self.keep_end(trial, outcome, value=value, result=result, seconds=seconds)
        self.last_values = values
        end = self._end_of(trial, outcome, result=result, seconds=seconds)
        if outcome.status is Status.COMPLETED:
            self._has_begun_well = True
            self.store.complete(trial, values or [], end)
        elif outcome.status is Status.PRUNED:
            self._has_begun_well = True
            self.store.prune(trial, end)
        elif outcome.status is Status.INTERRUPTED or is_nobodys_fault:
            number = self._put_back(trial, end)
            cause = outcome.cause if number is None else f"{outcome.cause}; it waits again as trial {number}"
            return replace(outcome, status=Status.INTERRUPTED, cause=cause)
        elif outcome.status is Status.REFUSED and self._concerns_all(trial, outcome):
            self._refusal = ConfigError(outcome.cause or "the configuration was refused")
            self._put_back(trial, end)
            return outcome
        else:
            self._fail(trial, outcome, end)
        self.n_ended += 1
        return outcome

    def keep_end(
        self, trial: Trial, outcome: Outcome, *, value: Any, result: dict[str, Any] | None, seconds: float
    ) -> tuple[Outcome, list[float] | None]:
        """Keeps how a trial ended in its folder, where the next start reads it; returns that and the values."""
        values, problem = None, None
        if outcome.status is Status.COMPLETED:
            values, problem = objectives(value, self.settings.metrics)
        if problem is not None:
            outcome = Outcome(status=Status.CRASHED, exit_code=1, cause=problem)
        self._write_end(trial, outcome, result=result, values=values, seconds=seconds)
        return outcome, values

    def _fail(self, trial: Trial, outcome: Outcome, end: dict[str, Any]) -> None:
        is_retried = outcome.status is Status.CRASHED and trial.user_attrs.get(TRIES, 0) < self.settings.max_retries
        clone = self.store.fail(trial, end, retry=is_retried)
        self.last_cause = outcome.cause or ""
        self.n_failed += clone is None
        if clone is not None:
            log.info("trial %d crashed and is tried again as trial %d", trial.number, clone)

    def _put_back(self, trial: Trial, end: dict[str, Any]) -> int | None:
        """Lets its point wait again, as the trial whose number is returned.

        In a sweep that was refused only if there is something to go on from.
        """
        if self.is_refused and end["checkpoint"] is None and CLONE_OF not in trial.user_attrs:
            self.store.not_counted(trial, end["cause"] or "refused")
            report.remove_folder(self.folder(trial))
            return None
        return self.store.put_back(trial, end)

    def put_back_unbegun(self, trial: Trial) -> None:
        """Lets a trial that was claimed and not started wait again."""
        self.store.put_back(trial, {"cause": "the sweep ended before it began"})
        report.remove_folder(self.folder(trial))

    def best(self) -> list[FrozenTrial]:
        """The best trial so far; with several objectives those that no other one beats."""
        return best_trials(self.store.study)

    def refuse(self, trial: Trial, error: Exception) -> None:
        """Ends a trial whose configuration cannot be composed."""
        text = " ".join(str(error).split())
        outcome = Outcome(status=Status.REFUSED, exit_code=2, cause=text, exception=type(error).__name__)
        self.end(trial, outcome, value=None, result=None, seconds=0.0)

    def _concerns_all(self, trial: Trial, outcome: Outcome) -> bool:
        """Whether no other point would do better: none has yet, and the text names no parameter of this one."""
        cause = outcome.cause or ""
        return not self._has_begun_well and not any(name.lstrip("+") in cause for name in trial.params)

    @property
    def is_refused(self) -> bool:
        """Whether the configuration will not do, whatever the point."""
        return self._refusal is not None

    def raise_refusal(self) -> None:
        """Raises why the configuration will not do, if it will not."""
        if self._refusal is not None:
            raise self._refusal

    @property
    def fails_too_often(self) -> bool:
        """Whether `hydra.sweeper.max_failure_rate` is passed, once as many have ended as run at once."""
        return self.n_ended >= self.settings.n_jobs and self.n_failed > self.settings.max_failure_rate * self.n_ended

    def _write_end(
        self, trial: Trial, outcome: Outcome, *, result: Any, values: list[float] | None, seconds: float
    ) -> None:
        """First in the folder: should the study never hear of it, the next start reads it there."""
        folder = self.folder(trial)
        if folder.is_dir():
            facts = {"values": values, "seconds": seconds, "trial": trial.number, "params": dict(trial.params)}
            write_end(folder, outcome, name=f"trial {trial.number}", result=result, facts=facts)

    def _end_of(
        self, trial: Trial, outcome: Outcome, *, result: dict[str, Any] | None, seconds: float
    ) -> dict[str, Any]:
        layout = RunLayout(self.folder(trial))
        found = (layout.checkpoint(name) for name in ("best", "last"))
        kept = next((str(path) for path in found if path.is_file()), None)
        return {
            "cause": outcome.cause,
            "checkpoint": (result or {}).get("best_checkpoint") or kept,
            "seconds": round(seconds, 3),
            "exit_code": outcome.exit_code,
            "ended": time.time(),
        }
