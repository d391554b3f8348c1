"""Brings what the coordinator knows into the form that the live table shows."""

import logging
import time
from collections.abc import Sequence

from optuna.trial import Trial

from project.common import process_registry
from project.common.processes.identity import Role
from project.common.processes.outcome import Outcome, Status
from project.common.wording import numbers, params_text
from project.sweeps.jobs.job import RunningJob
from project.sweeps.shown.live_table import BestView, LiveTable, SlotView, SweepView, seconds_left
from project.sweeps.study.counts import Counts
from project.sweeps.trials import Trials

log = logging.getLogger(__name__)

_COUNT_EVERY_S = 2.0  # asking the study costs a query
_ENDINGS = {
    Status.COMPLETED: "completed",
    Status.PRUNED: "pruned",
    Status.INTERRUPTED: "interrupted",
    Status.CRASHED: "failed",
    Status.REFUSED: "failed",
}


class Showing:
    """What is shown of one sweep.

    Args:
        trials: The sweep's.
        table: Where.
    """

    def __init__(self, trials: Trials, table: LiveTable) -> None:
        self._trials, self._table = trials, table
        self._params: dict[int, str] = {}
        self._took_s: list[float] = []
        self._counts: Counts | None = None
        self._best: BestView | None = None
        self._next_count = 0.0
        self._said_waiting = False

    def begin(self, trial: Trial) -> None:
        """A trial runs from now on."""
        self._params[trial.number] = params_text(self._typed(trial))
        self._table.begin(trial.number, self._params[trial.number])

    def end(self, trial: Trial, outcome: Outcome, seconds: float, *, values: Sequence[float] | None) -> None:
        """A trial has ended."""
        self._params.pop(trial.number, None)
        self._next_count = 0.0
        if outcome.status in (Status.COMPLETED, Status.PRUNED):
            self._took_s.append(seconds)
        text = numbers(values) if outcome.status is Status.COMPLETED else ""
        self._table.end(trial.number, _ENDINGS[outcome.status], seconds, value_text=text, cause=_cause(outcome))

    def say_waiting(self, n_others: int) -> None:
        """Says once that only other shells still run trials."""
        if not self._said_waiting:
            self._said_waiting = True
            log.info("%d trials run in other shells; this one waits, in case they come back", n_others)

    def show(self, running: Sequence[RunningJob]) -> None:
        """Shows the present state, if it is time to."""
        if self._table.is_due:
            self._table.update(self._view(running))

    def _view(self, running: Sequence[RunningJob]) -> SweepView:
        counts = self._count()
        n_slots = self._trials.settings.n_jobs
        n_left = max(0, self._trials.n_trials - counts.counted - counts.running)
        return SweepView(
            study=self._trials.settings.study_name,
            n_trials=self._trials.n_trials,
            n_done=counts.counted,
            n_pruned=counts.pruned,
            n_failed=counts.failed,
            n_waiting=counts.waiting,
            n_elsewhere=counts.running_others,
            slots=[self._slot(job) for job in running],
            best=self._best,
            last_cause=self._trials.last_cause,
            seconds_left=seconds_left(
                self._took_s, running_s=[job.seconds for job in running], n_to_begin=n_left, n_slots=n_slots
            ),
        )

    def _count(self) -> Counts:
        now = time.monotonic()
        if self._counts is None or now >= self._next_count:
            self._counts, self._next_count = self._trials.store.progress(), now + _COUNT_EVERY_S
            self._best = self._find_best()
        return self._counts

    def _find_best(self) -> BestView | None:
        best = self._trials.best()
        if not best:
            return None
        first = best[0]
        text = params_text({name: self._trials.space.typed(name, value) for name, value in first.params.items()})
        n_front = len(best) if len(first.values) > 1 else None
        return BestView(number=first.number, values=tuple(first.values), params_text=text, n_front=n_front)

    def _slot(self, job: RunningJob) -> SlotView:
        progress = job.progress
        return SlotView(
            number=job.job.number,
            params_text=self._params.get(job.job.number, ""),
            state=_state(job),
            step=progress.get("n_done"),
            total_steps=progress.get("n"),
            value=progress.get("value"),
            seconds=job.seconds,
        )

    def _typed(self, trial: Trial) -> dict[str, object]:
        return {name: self._trials.space.typed(name, value) for name, value in trial.params.items()}


def _state(job: RunningJob) -> str:
    """State of its rank 0, or of the trial before there is one."""
    records = process_registry.living(job.job.folder)
    first = [record for record in records if record.identity.role is Role.RANK and not record.identity.rank]
    return (first or records)[0].state if records else "starting"


def _cause(outcome: Outcome) -> str | None:
    return outcome.cause if outcome.status in (Status.CRASHED, Status.REFUSED, Status.INTERRUPTED) else None
