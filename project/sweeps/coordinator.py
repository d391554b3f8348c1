"""The sweep's own loop over trials that are processes: fill free slots, answer reports, tell ends, show it all."""

import logging
import time
from contextlib import suppress
from typing import Any

from hydra.errors import HydraException
from omegaconf import OmegaConf
from optuna.pruners import NopPruner
from optuna.trial import Trial

from project.common.errors import ProcessServerError
from project.common.processes import stop
from project.common.processes.handover import SweepInfo
from project.common.processes.outcome import Status
from project.sweeps.jobs.endings import FailureLimit
from project.sweeps.jobs.job import Ended, Job, RunningJob
from project.sweeps.jobs.job_pool import JobPool
from project.sweeps.jobs.launcher import JobLauncher
from project.sweeps.shown.live_table import LiveTable
from project.sweeps.shown.showing import Showing
from project.sweeps.study.ownership import BEAT_S
from project.sweeps.study.patience import StorageLostError
from project.sweeps.trials import Trials

log = logging.getLogger(__name__)

TURN_S = 0.5
ASK_AGAIN_S = 2.0  # while other shells run the last trials, which may come back
DEVICES_AGAIN_S = 0.5
MOST_LOST_SERVERS = 3  # in a row, without a trial that ended by itself


class Coordinator:
    """Runs the trials of one sweep in this process's pool of jobs.

    Args:
        trials: What is run.
        launcher: Starts them.
    """

    def __init__(self, trials: Trials, launcher: JobLauncher) -> None:
        self._trials, self._launcher = trials, launcher
        self._by_number: dict[int, Trial] = {}
        self._waiting: tuple[Trial, Job] | None = None  # claimed, and no device was free
        self._limit = FailureLimit(launcher.settings)
        self._prunes = not isinstance(trials.store.study.pruner, NopPruner)
        self._next_claim = self._next_beat = 0.0
        self._n_lost_servers = 0
        self._ended: list[Ended] = []  # and not told yet
        self._is_done = self._is_storage_lost = False

    def run(self) -> None:
        """Returns when enough trials have ended, or when the sweep is to end and nothing runs any more."""
        with self._launcher.running(self._on_message, wants_configs=False) as pool, LiveTable() as table:
            self._showing = Showing(self._trials, table)
            try:
                self._run(pool)
            except StorageLostError:
                self._keep_ends(pool)
                raise

    def _run(self, pool: JobPool) -> None:
        while True:
            with suppress(stop.StopRequested):  # one that comes while a trial is claimed; `_is_ending` knows it
                self._fill(pool)
            if not pool.running and (self._is_done or self._is_ending):
                break
            self._ended += pool.turn(TURN_S)
            while self._ended:
                self._end(self._ended.pop(0))
            if self._is_ending and stop.stop_request() is None:
                self._end_the_rest(pool)
            self._beat(pool)
            self._showing.show(pool.running)
        if self._waiting is not None:
            self._put_back_unbegun(self._waiting[0])

    def _keep_ends(self, pool: JobPool) -> None:
        """What could not be told is kept in the trials' folders; those that still run save and end."""
        self._is_storage_lost = True
        self._end_the_rest(pool)
        while pool.running or self._ended:
            ends, self._ended = self._ended or pool.turn(TURN_S), []
            for ended in ends:
                self._trials.keep_end(
                    self._by_number.pop(ended.job.number),
                    ended.outcome,
                    value=_value_of(ended),
                    result=ended.result,
                    seconds=ended.seconds,
                )

    @property
    def _is_ending(self) -> bool:
        """Whether nothing more is to be begun."""
        return (
            stop.stop_request() is not None
            or self._trials.is_refused
            or self._limit.is_reached
            or self._trials.fails_too_often
        )

    def _fill(self, pool: JobPool) -> None:
        now = time.monotonic()
        while not self._is_ending and self._slots_taken(pool) < self._launcher.n_jobs and now >= self._next_claim:
            claimed = self._waiting or self._claim()
            if claimed is None:
                self._next_claim = now + ASK_AGAIN_S
                break
            trial, job = self._waiting = claimed
            if not self._try_start(job):
                self._next_claim = now + DEVICES_AGAIN_S
                break
            self._waiting = None
            self._showing.begin(trial)

    def _try_start(self, job: Job) -> bool:
        """Whether it runs; not while too few devices are free, nor when the process server has just been killed."""
        try:
            return self._launcher.try_start(job) is not None
        except ProcessServerError as error:
            log.warning("%s", error)
            self._renew_server()
            return False

    def _slots_taken(self, pool: JobPool) -> int:
        settings = self._trials.settings  # an equal point's value has to be told before it can be taken over
        return self._limit.slots_taken(pool, must_know=settings.max_failure_rate < 1 or settings.skip_repeated)

    def _claim(self) -> tuple[Trial, Job] | None:
        """A trial with its folder, ready to start; those that cannot be composed end here."""
        while not self._is_ending:
            trial = self._trials.claim()
            if trial is None:
                self._is_done = not self._by_number and self._nobody_runs()
                return None
            job = self._prepare(trial)
            if job is not None:
                self._by_number[trial.number] = trial
                return trial, job
        return None

    def _nobody_runs(self) -> bool:
        counts = self._trials.store.progress()
        if counts.running_others:
            self._showing.say_waiting(counts.running_others)
        return counts.running == 0

    def _prepare(self, trial: Trial) -> Job | None:
        overrides = self._trials.overrides(trial)
        attempt = self._trials.make_folder(trial)
        try:
            config = self._launcher.compose(overrides, number=trial.number)
        except HydraException as error:
            self._trials.refuse(trial, error)
            return None
        OmegaConf.update(config, "hydra.sweep.subdir", str(trial.number), force_add=True)
        settings = self._trials.settings
        sweep = SweepInfo(
            study=settings.study_name,
            n_parallel=self._launcher.n_jobs,
            params=dict(trial.params),
            prunes=self._prunes,
            metrics=tuple(settings.metrics) if settings.metrics_are_given else (),
        )
        folder = self._trials.folder(trial)
        return Job(number=trial.number, config=config, folder=folder, sweep=sweep, attempt=attempt)

    def _on_message(self, running: RunningJob, kind: str, data: Any) -> None:
        if kind != "report" or self._is_storage_lost:
            return
        running.progress["value"] = data["value"]
        trial = self._by_number[running.job.number]
        is_pruned = self._trials.store.report(trial, data["value"], data["step"])
        if self._prunes:
            running.child.send("verdict", is_pruned)

    def _end(self, ended: Ended) -> None:
        trial = self._by_number.pop(ended.job.number)
        outcome = self._trials.end(
            trial,
            ended.outcome,
            value=_value_of(ended),
            result=ended.result,
            seconds=ended.seconds,
            is_nobodys_fault=ended.is_servers_fault,
        )
        self._limit.count(outcome)
        if not self._trials.is_refused:  # that is told once, at the end
            self._showing.end(trial, outcome, ended.seconds, values=self._trials.last_values)
        self._next_claim = 0.0
        if ended.is_servers_fault:
            self._renew_server()
        elif outcome.status is not Status.INTERRUPTED:
            self._n_lost_servers = 0

    def _renew_server(self) -> None:
        self._n_lost_servers += 1
        with suppress(stop.StopRequested):
            self._launcher.renew_server(spawn=self._n_lost_servers >= MOST_LOST_SERVERS)

    def _end_the_rest(self, pool: JobPool) -> None:
        """They are not at fault: they save what they have, and are put back."""
        for running in pool.running:
            if not running.is_told:
                running.is_told = True
                running.supervisor.end("the sweep ends", grace_s=self._launcher.settings.deadline_s)

    def _beat(self, pool: JobPool) -> None:
        now = time.monotonic()
        if now < self._next_beat:
            return
        self._next_beat = now + BEAT_S
        closed = self._trials.store.beat(list(self._by_number.values()))
        for running in pool.running:
            if running.job.number in closed:
                running.end("another process has closed this trial")

    def _put_back_unbegun(self, trial: Trial) -> None:
        self._by_number.pop(trial.number, None)
        self._trials.put_back_unbegun(trial)


def _value_of(ended: Ended) -> Any:
    return None if ended.returned is None else ended.returned._return_value
