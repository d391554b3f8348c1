"""Closing a trial in favour of a clone, and what becomes of the trials whose owners are dead.

Every step can be the last of a killed process: the clone comes first and names the trial that it replaces, so that
whoever goes on finds it and makes no second one.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from project.common.files.layout import RunLayout
from project.common.files.secrets import mask_config
from project.common.processes.outcome import Status
from project.sweeps.study.trial_book import (
    CLONE_OF,
    CONTINUES,
    END,
    FIRST_TRY,
    RUN,
    SUPERSEDED_BY,
    TRIES,
    TrialBook,
)

ValuesOf = Callable[[Path], list[float] | None]


@dataclass(frozen=True, kw_only=True)
class Superseded:
    """What became of a trial whose owner is dead.

    Args:
        number: Of the trial.
        owner: Words for the process that is gone.
        clone: Number of the trial that takes its place; None when it had completed.
        values: What was told for it, since it had completed.
    """

    number: int
    owner: str
    clone: int | None = None
    values: list[float] | None = None

    def __str__(self) -> str:
        became = f"waits again as trial {self.clone}" if self.values is None else "had completed, and is told now"
        return f"trial {self.number} of {self.owner}, which is gone, {became}"


def supersede(
    book: TrialBook, trial: FrozenTrial, end: Mapping[str, Any], *, attributes: dict[str, Any], clone: int | None = None
) -> int:
    """Fails a running trial in favour of a waiting clone; returns the clone's number.

    Args:
        book: Where it is stored.
        trial: As stored.
        end: The attribute `end`.
        attributes: What the clone has besides its origin.
        clone: One that was made before.
    """
    if clone is None:
        origin = {CLONE_OF: trial.number, FIRST_TRY: trial.user_attrs.get(FIRST_TRY, trial.number)}
        clone = book.clone(trial, {TRIES: trial.user_attrs.get(TRIES, 0)} | origin | attributes)
    book.note(trial._trial_id, END, mask_config(dict(end)))
    book.note(trial._trial_id, SUPERSEDED_BY, clone)
    book.close(trial._trial_id, TrialState.FAIL)
    return clone


def clone_of(trial: FrozenTrial, trials: Iterable[FrozenTrial]) -> int | None:
    """Number of the clone that a process made for `trial` before it was killed."""
    return next((other.number for other in trials if other.user_attrs.get(CLONE_OF) == trial.number), None)


def going_on(trial: FrozenTrial, checkpoint: str | None) -> dict[str, Any]:
    """The attribute of a clone that says whose checkpoint it goes on from: this trial's, or the one that it had."""
    origin = trial.number if checkpoint else trial.user_attrs.get(CONTINUES)
    return {} if origin is None else {CONTINUES: origin}


def take_over(
    book: TrialBook, trial: FrozenTrial, trials: list[FrozenTrial], *, owner: str, sweep_dir: Path, values_of: ValuesOf
) -> Superseded:
    """Ends a dead owner's trial: told if its folder says that it completed, else closed and cloned."""
    clone, folder = clone_of(trial, trials), folder_of(trial, sweep_dir)
    values = values_of(folder) if clone is None and folder is not None else None
    checkpoint = _checkpoint(folder)
    end = {"cause": f"{owner} is gone", "checkpoint": checkpoint, "seconds": _seconds(trial), "exit_code": None}
    if values is not None:
        book.note(trial._trial_id, END, end | {"cause": None, "exit_code": 0})
        book.close(trial._trial_id, TrialState.COMPLETE, values)
        return Superseded(number=trial.number, owner=owner, values=values)
    # A folder that cannot be seen from here may have a checkpoint: whoever runs the clone looks again.
    unseen = folder is not None and not folder.is_dir()
    attributes = going_on(trial, checkpoint or ("unseen" if unseen else None))
    number = supersede(book, trial, end, attributes=attributes, clone=clone)
    return Superseded(number=trial.number, owner=owner, clone=number)


def folder_of(trial: FrozenTrial, sweep_dir: Path) -> Path | None:
    """Folder of a trial; None when it was never begun."""
    folder = trial.user_attrs.get(RUN, {}).get("folder")
    return None if folder is None else sweep_dir / folder


def completed_values(folder: Path) -> list[float] | None:
    """The objectives' values if the trial in `folder` completed, from its outcome."""
    layout = RunLayout(folder)
    try:
        outcome = json.loads(layout.outcome.read_text(encoding="utf-8"))
        if outcome["status"] != Status.COMPLETED:
            return None
        values = outcome["values"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_whole = (
        isinstance(values, list)
        and bool(values)
        and all(isinstance(value, Real) and not math.isnan(value) for value in values)
    )
    return [float(value) for value in values] if is_whole else None


def _checkpoint(folder: Path | None) -> str | None:
    last = None if folder is None else RunLayout(folder).checkpoint("last")
    return str(last) if last is not None and last.is_file() else None


def _seconds(trial: FrozenTrial) -> float | None:
    """How long it ran, as far as its beats tell."""
    beat = trial.user_attrs.get("beat")
    return None if beat is None else max(0.0, float(beat) - float(trial.user_attrs[RUN]["claimed"]))
