"""Claiming a trial: what dead owners left is mended, then trials are counted, and one is begun."""

import copy
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, Trial, TrialState

from project.common.processes import stop
from project.sweeps.study.counts import count
from project.sweeps.study.opening import OpenedStudy
from project.sweeps.study.ownership import Ownership
from project.sweeps.study.taking_up import Superseded, ValuesOf, supersede, take_over
from project.sweeps.study.trial_book import NOT_COUNTED, RUN, TrialBook, mask_run, study_of

log = logging.getLogger(__name__)

Suggest = Callable[[Trial], Mapping[str, Any]]
_NOT_BEGUN = "it was not begun"
_GRID_POINT = ("grid_id", "search_space")  # what the grid sampler notes of a point that it has given out


class Claims:
    """Begins trials for one store.

    Args:
        opened: The study.
        book: Its trials.
        ownership: Who we are.
        sweep_dir: The sweep's folder.
        values_of: The values of a run that completed, from its folder.
    """

    def __init__(
        self, opened: OpenedStudy, *, book: TrialBook, ownership: Ownership, sweep_dir: Path, values_of: ValuesOf
    ) -> None:
        self._storage, self._study, self._section = opened.storage, opened.study, opened.section
        self._book, self._ownership = book, ownership
        self._sweep_dir, self._read_values = sweep_dir, values_of

    def take_up(self) -> list[Superseded]:
        """Ends the trials of dead owners."""
        with self._section.held():
            return self._mend(self._book.all())

    def claim(self, n_trials: int, suggest: Suggest) -> Trial | None:
        """Begins a trial in one section; None when enough have ended or are running."""
        stop.raise_if_stop_requested()
        with self._section.held():
            trials = self._book.all()
            if self._mend(trials):
                trials = self._book.all()
            counts = count(trials, mine=self._ownership.mine)
            if counts.counted + counts.running >= n_trials:
                return None
            self._section.check()
            return self._begin(trials, suggest)

    def _mend(self, trials: list[FrozenTrial]) -> list[Superseded]:
        mended = []
        for trial in trials:
            if self._ownership.is_dead(trial):
                self._section.check()
                owner = self._ownership.describe(trial)
                found = take_over(
                    self._book, trial, trials, owner=owner, sweep_dir=self._sweep_dir, values_of=self._values_of
                )
                log.info("%s", found)
                mended.append(found)
        return mended

    def _values_of(self, folder: Path) -> list[float] | None:
        values = self._read_values(folder)
        return values if values is None or len(values) == len(self._study.directions) else None

    def _begin(self, trials: list[FrozenTrial], suggest: Suggest) -> Trial:
        run = self._ownership.claim()
        waiting = (trial for trial in trials if trial.state is TrialState.WAITING)
        popped = next((found for trial in waiting if (found := self._book.pop(trial, run)) is not None), None)
        trial_id = self._book.begin(run) if popped is None else popped
        study = study_of(self._storage, self._study.study_name, sampler=self._study.sampler, pruner=self._study.pruner)
        try:
            trial = Trial(study, trial_id)
            run |= suggest(trial)
            self._section.check()
            self._book.note(trial_id, RUN, mask_run(run))
        except BaseException:
            # If that fails too, the next claim finds a trial that nobody has.
            with suppress(Exception):
                self._withdraw(trial_id, was_waiting=popped is not None)
            raise
        self._ownership.mine.add(trial.number)
        return trial

    def _withdraw(self, trial_id: int, *, was_waiting: bool) -> None:
        """Undoes a claim that could not be finished; no point is lost by it."""
        if was_waiting:
            self._book.unpop(trial_id)
            return
        trial = copy.copy(self._book.read(trial_id))
        point = {key: trial.system_attrs[key] for key in _GRID_POINT if key in trial.system_attrs}
        if point:
            trial.params, trial.distributions, trial.system_attrs = {}, {}, point
            supersede(self._book, trial, {"cause": _NOT_BEGUN}, attributes={})
        else:
            self._book.note(trial_id, NOT_COUNTED, _NOT_BEGUN)
            self._book.close(trial_id, TrialState.FAIL)
