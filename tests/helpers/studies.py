"""Studies as a sweep leaves them, made without any training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial

KEY = {"host": "box", "boot_id": "b", "pid_namespace": "n", "pid": 41, "start_time": "1"}
DISTRIBUTIONS: Mapping[str, BaseDistribution] = {
    "lr": FloatDistribution(1e-5, 1.0, log=True),
    "model": CategoricalDistribution(["small", "big"]),
}


def new_study(sweep_dir: Path, *, directions: Sequence[str] = ("maximize",), name: str = "s") -> optuna.Study:
    """A study in the file that a sweep uses by default."""
    sweep_dir.mkdir(parents=True, exist_ok=True)
    return optuna.create_study(
        storage=f"sqlite:///{sweep_dir / 'study.db'}", study_name=name, directions=list(directions)
    )


def add(
    study: optuna.Study,
    sweep_dir: Path,
    state: str = "COMPLETE",
    *,
    values: Sequence[float] | None = None,
    params: Mapping[str, Any] | None = None,
    distributions: Mapping[str, BaseDistribution] = DISTRIBUTIONS,
    intermediate: Mapping[int, float] | None = None,
    end: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> int:
    """Adds a trial that has ended, or runs, or waits; returns its number."""
    number = len(study.get_trials(deepcopy=False))
    params = {"lr": 0.1 / (number + 1), "model": "small"} if params is None else dict(params)
    overrides = ["+experiment=x", "+search=y", *(f"{name}={value}" for name, value in params.items())]
    began = state != "WAITING"
    run = {"owner": KEY, "claimed": 1.0, "folder": str(sweep_dir / str(number)), "overrides": overrides}
    attributes |= ({"run": run} if began else {}) | ({"end": dict(end)} if end else {})
    trial = create_trial(
        state=TrialState[state],
        values=None if values is None else list(values),
        params=params,
        distributions={name: distributions[name] for name in params},
        user_attrs=attributes,
        intermediate_values=dict(intermediate or {}),
    )
    study.add_trial(trial)
    return number
