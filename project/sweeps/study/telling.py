"""Telling how trials ended: once, and without harm when somebody else has done so before."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from project.common.files.secrets import mask_config
from project.sweeps.study.exclusive import Section
from project.sweeps.study.patience import is_outage
from project.sweeps.study.taking_up import clone_of, supersede
from project.sweeps.study.trial_book import END, SUPERSEDED_BY, TrialBook

log = logging.getLogger(__name__)


class Teller:
    """Tells the study how a trial ended.

    Args:
        study: With its sampler, which hears of every end.
        book: The study's trials.
        section: Is held by the caller.
    """

    def __init__(self, study: optuna.Study, book: TrialBook, section: Section) -> None:
        self._study, self._book, self._section = study, book, section

    def tell(
        self, trial: Trial, state: TrialState, end: Mapping[str, Any], *, values: list[float] | None = None
    ) -> None:
        """Ends a running trial. One that has ended keeps what is stored; that is said if it is something else."""
        if not self._book.note(trial._trial_id, END, mask_config(dict(end))):
            _say_if_other(self._book.read(trial._trial_id), state, values)
            return
        try:
            self._study.tell(trial, values, state)
        except Exception as error:
            if is_outage(error):
                raise
            stored = self._book.read(trial._trial_id)
            if not stored.state.is_finished():
                raise
            # The state is stored before the sampler's error comes up. The grid's means that this was its last point.
            if "Study.stop" not in str(error):
                log.warning("the sampler failed after trial %d had been stored: %s", trial.number, error)
            _say_if_other(stored, state, values)

    def replace(self, trial: Trial, end: Mapping[str, Any], attributes: Callable[[FrozenTrial], dict[str, Any]]) -> int:
        """Ends a running trial in favour of a waiting clone; returns its number, or that of a trial that had ended."""
        stored = self._book.read(trial._trial_id)
        if stored.state.is_finished():
            log.warning("trial %d had been closed as %s already", stored.number, stored.state.name)
            taken_by: int = stored.user_attrs.get(SUPERSEDED_BY, stored.number)
            return taken_by
        clone = clone_of(stored, self._book.all())
        self._section.check()
        return supersede(self._book, stored, end, attributes=attributes(stored), clone=clone)


def _say_if_other(stored: FrozenTrial, state: TrialState, values: list[float] | None) -> None:
    if stored.state is state and values in (None, stored.values):
        return
    clone = stored.user_attrs.get(SUPERSEDED_BY)
    by = "" if clone is None else f", and trial {clone} has taken its place"
    told = state.name if values is None else f"{state.name} with {', '.join(f'{value:g}' for value in values)}"
    log.warning(
        "trial %d ended here as %s, but another process had closed it as %s%s; what is stored stays",
        *(stored.number, told, stored.state.name, by),
    )


def checked_values(number: int, values: float | Sequence[float], *, n_objectives: int) -> list[float]:
    """The values as a list.

    Raises:
        ValueError: They cannot be told.
    """
    listed = list(values) if isinstance(values, Sequence) and not isinstance(values, str) else [values]
    for value in listed:
        if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
            raise ValueError(f"trial {number}: {value!r} is no value of an objective; fail the trial instead")
    if len(listed) != n_objectives:
        raise ValueError(f"trial {number}: {len(listed)} values were given, the study has {n_objectives} objectives")
    return [float(value) for value in listed]  # type: ignore[arg-type]
