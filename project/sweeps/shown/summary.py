"""What a study says of its trials, as plain facts without secrets: for the results, the last lines, the report."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from project.common.files.layout import RunLayout
from project.common.files.secrets import MASK, is_secret_name, mask_config, mask_override, mask_text

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

ENDINGS = ("completed", "pruned", "failed", "refused", "superseded", "running", "waiting")
RERUN = ("python", "train.py")
# What makes a sweep says nothing about one run.
_OF_SWEEPS = ("hydra.sweep", "hydra/sweep", "hydra.launcher", "hydra/launcher", "hydra.mode")


class HasTypes(Protocol):
    """What a `SearchSpace` can do."""

    def typed(self, name: str, stored: Any) -> Any:
        """The value that the trial saw, of the one that the study keeps."""


@dataclass(frozen=True, kw_only=True)
class TrialFacts:
    """One trial.

    Args:
        ending: One of `ENDINGS`. Superseded: it was interrupted or is tried again, and another one has taken its place.
        params: As the trial saw them.
        folder: Where its run is; None if it never began.
        overrides: All of its command line.
        began: Local time; so is `ended`.
        repeats: The trial whose value it took over, since the point was the same; None if it ran itself.
        owner: The shell that ran it, `host:pid`.
        seconds: It took so long; None while it runs.
    """

    number: int
    ending: str
    values: tuple[float, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    checkpoint: str | None = None
    wandb_id: str | None = None
    overrides: tuple[str, ...] = ()
    cause: str | None = None
    superseded_by: int | None = None
    continues: int | None = None
    repeats: int | None = None
    began: datetime | None = None
    ended: datetime | None = None
    owner: str = ""
    seconds: float | None = None

    def command(self, start: Sequence[str] = RERUN) -> str:
        """The command that runs it once more, for a shell."""
        own = (override for override in self.overrides if not override.lstrip("+~").startswith(_OF_SWEEPS))
        return shlex.join([*start, *own])


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One study.

    Args:
        metrics: A name for each objective.
        directions: `minimize` or `maximize` for each.
        trials: All of them, by number.
        best: The best one; with several objectives those that no other one beats; empty before one was completed.
    """

    study: str
    metrics: tuple[str, ...]
    directions: tuple[str, ...]
    trials: tuple[TrialFacts, ...]
    best: tuple[TrialFacts, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many trials ended how; only what there is."""
        found = Counter(trial.ending for trial in self.trials)
        return {ending: found[ending] for ending in ENDINGS if found[ending]}

    @property
    def failures(self) -> list[TrialFacts]:
        """The trials that failed for good."""
        return [trial for trial in self.trials if trial.ending in ("failed", "refused")]

    def repeated(self) -> list[TrialFacts]:
        """The trials that ran a point that another one before them had tried, as happens in small spaces."""
        seen: set[str] = set()
        again = []
        for trial in self.trials:
            if trial.ending in ("completed", "pruned", "failed") and trial.repeats is None:
                point = repr(sorted(trial.params.items()))
                again += [trial] if point in seen else []
                seen.add(point)
        return again

    def taken_over(self) -> list[TrialFacts]:
        """The trials that were not run, since their point had a value."""
        return [trial for trial in self.trials if trial.repeats is not None]

    def failures_by_cause(self) -> dict[str, list[TrialFacts]]:
        """The same, those with one cause together."""
        groups: dict[str, list[TrialFacts]] = {}
        for trial in self.failures:
            groups.setdefault(trial.cause or "no cause is recorded", []).append(trial)
        return groups


def summarize(study: "Study", sweep_dir: Path, space: "HasTypes | None" = None) -> Summary:
    """Reads a study.

    Args:
        study: Only read.
        sweep_dir: The sweep's folder, wherever it is now.
        space: Knows which texts are lists; None takes parameters as the study keeps them.
    """
    frozen = study.get_trials(deepcopy=False)
    trials = {trial.number: _facts(trial, sweep_dir, space) for trial in frozen}
    n_objectives = len(study.directions)
    names = study.metric_names or (
        [f"value {number}" for number in range(n_objectives)] if n_objectives > 1 else ["value"]
    )
    return Summary(
        study=study.study_name,
        metrics=tuple(names),
        directions=tuple(direction.name.lower() for direction in study.directions),
        trials=tuple(trials[number] for number in sorted(trials)),
        best=tuple(trials[trial.number] for trial in best_trials(study)),
    )


def best_trials(study: "Study") -> list["FrozenTrial"]:
    """The best one; with several objectives those that no other one beats; none before one was completed."""
    if len(study.directions) > 1:
        return sorted(study.best_trials, key=lambda trial: trial.number)
    try:
        return [study.best_trial]
    except ValueError:  # none was completed, or none that is feasible
        return []


def _facts(trial: "FrozenTrial", sweep_dir: Path, space: "HasTypes | None") -> TrialFacts:
    from project.sweeps.study.trial_book import CONTINUES, END, NOT_COUNTED, REPEATS, RUN, SUPERSEDED_BY

    attributes = trial.user_attrs
    run, end = attributes.get(RUN) or {}, attributes.get(END) or {}
    folder = _folder(trial.number, run, sweep_dir)
    cause = end.get("cause") or attributes.get(NOT_COUNTED)
    owner = run.get("owner") or {}
    return TrialFacts(
        number=trial.number,
        ending=_ending(trial),
        values=tuple(trial.values or ()) if trial.state.name in ("COMPLETE", "PRUNED") else (),
        params={name: _param(name, value, space) for name, value in trial.params.items()},
        folder=folder,
        checkpoint=_checkpoint(end.get("checkpoint"), folder),
        wandb_id=_wandb_id(folder),
        overrides=tuple(map(mask_override, run.get("overrides") or ())),
        cause=None if cause is None else mask_text(str(cause)),
        superseded_by=attributes.get(SUPERSEDED_BY),
        continues=attributes.get(CONTINUES),
        repeats=run.get(REPEATS),
        began=trial.datetime_start,
        ended=trial.datetime_complete,
        owner=f"{owner.get('host', '?')}:{owner.get('pid', '?')}" if owner else "",
        seconds=_seconds(trial, end),
    )


def _ending(trial: "FrozenTrial") -> str:
    from project.sweeps.study.trial_book import NOT_COUNTED, SUPERSEDED_BY

    if trial.state.name != "FAIL":
        return {"COMPLETE": "completed"}.get(trial.state.name, trial.state.name.lower())
    if SUPERSEDED_BY in trial.user_attrs:
        return "superseded"
    return "refused" if NOT_COUNTED in trial.user_attrs else "failed"


def _param(name: str, value: Any, space: "HasTypes | None") -> Any:
    if is_secret_name(name.lstrip("+")):
        return MASK
    return mask_config(space.typed(name, value) if space else value)


def _folder(number: int, run: dict[str, Any], sweep_dir: Path) -> Path | None:
    """The recorded folder, or the one beside the others if the sweep was moved or copied."""
    recorded = sweep_dir / run["folder"] if run.get("folder") else None
    beside = sweep_dir / str(number)
    if beside.is_dir() and not (recorded and recorded.is_dir()):
        return beside
    return recorded


def _checkpoint(recorded: str | None, folder: Path | None) -> str | None:
    """As recorded, in the folder where it is now if the sweep was moved or copied."""
    if recorded is None or folder is None or Path(recorded).exists():
        return recorded
    moved = RunLayout(folder).checkpoints_dir / Path(recorded).name
    return str(moved) if moved.exists() else recorded


def _wandb_id(folder: Path | None) -> str | None:
    file = RunLayout(folder).wandb_run_id if folder else None
    return file.read_text(encoding="utf-8").strip() if file and file.is_file() else None


def _seconds(trial: "FrozenTrial", end: dict[str, Any]) -> float | None:
    if end.get("seconds") is not None:
        return float(end["seconds"])
    return trial.duration.total_seconds() if trial.duration else None
