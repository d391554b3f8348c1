"""A study as it may be shown: a copy in memory without secrets."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from project.common.files.secrets import is_secret_name
from project.common.pages.plots import plot_text

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

_MOST_LINES = 300  # a browser draws each as a shape of its own


def shown_copy(study: "Study") -> "Study":
    """A copy in memory of what may be shown: no secrets, no attributes."""
    import optuna

    names = study.metric_names
    copy = optuna.create_study(directions=study.directions, study_name=study.study_name)
    if names:
        copy.set_metric_names(names)
    copy.add_trials([_shown(trial) for trial in study.get_trials(deepcopy=False)])
    return copy


def _shown(trial: "FrozenTrial") -> "FrozenTrial":
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import FrozenTrial

    params, distributions = {}, {}
    for name, value in trial.params.items():
        if is_secret_name(name.lstrip("+")):
            continue
        params[name], distributions[name] = value, trial.distributions[name]
        if isinstance(trial.distributions[name], CategoricalDistribution):
            choices = _texts(trial.distributions[name].choices)
            params[name] = choices[int(trial.distributions[name].to_internal_repr(value))]
            distributions[name] = CategoricalDistribution(choices)
    return FrozenTrial(
        number=trial.number,
        trial_id=trial.number,
        state=trial.state,
        value=None,
        values=trial.values,
        datetime_start=trial.datetime_start,
        datetime_complete=trial.datetime_complete,
        params=params,
        distributions=distributions,
        user_attrs={},
        system_attrs={},
        intermediate_values=trial.intermediate_values,
    )


def _texts(choices: Sequence[Any]) -> list[Any]:
    """The choices as they may be shown, and none twice."""
    shown: list[Any] = []
    for choice in choices:
        text = plot_text(choice) if isinstance(choice, str) else choice
        shown.append(text if text not in shown else f"{text} ({len(shown)})")
    return shown


def few_trials(study: "Study") -> "tuple[Study, str]":
    """A study in which only the best and the latest of many trials have values, and a note on that."""
    import optuna

    trials = study.get_trials(deepcopy=False)
    if len(trials) <= _MOST_LINES:
        return study, ""
    sign = -1 if study.directions[0].name == "MAXIMIZE" else 1
    ranked = sorted((it for it in trials if it.values), key=lambda trial: sign * trial.values[0])
    chosen = {trial.number: trial for trial in (*ranked[: _MOST_LINES // 2], *trials[-_MOST_LINES // 2 :])}
    few = optuna.create_study(directions=study.directions, study_name=study.study_name)
    few.add_trials([chosen.get(trial.number) or _left_out(trial) for trial in trials])
    return few, f"{len(chosen)} of {len(trials)} trials: the best and the latest"


def _left_out(trial: "FrozenTrial") -> "FrozenTrial":
    """Keeps the place of a trial, by which the later ones have their numbers."""
    from optuna.trial import TrialState, create_trial

    return create_trial(state=TrialState.FAIL, params=trial.params, distributions=trial.distributions)
