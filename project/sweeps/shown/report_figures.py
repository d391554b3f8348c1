"""The plots of the report that Optuna draws."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from project.common.pages.plots import NotDrawnError, Plot, make_plot, plot_text
from project.sweeps.shown.shown_study import few_trials, shown_copy
from project.sweeps.shown.summary import Summary

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial
    from plotly.graph_objects import Figure


def optuna_plots(study: "Study", summary: Summary) -> Iterator[Plot]:
    """Yields the plots that this study allows; for each other one the reason."""
    import optuna.visualization as draw

    shown = shown_copy(study)
    few, note = few_trials(shown)
    if len(summary.directions) > 1:
        yield make_plot("Pareto front", partial(_of_completed, draw.plot_pareto_front, shown, {}))
    for title, target in _targets("History", summary):
        yield make_plot(title, partial(_of_completed, draw.plot_optimization_history, shown, target))
    yield make_plot("Importance of parameters", partial(_importances, shown))
    for title, target in _targets("Parallel coordinates", summary):
        yield make_plot(title, partial(_of_completed, draw.plot_parallel_coordinate, few, target), note)
    for title, target in _targets("Slices", summary):
        yield make_plot(title, partial(_of_completed, draw.plot_slice, shown, target))
    for title, target in _targets("The two parameters that matter most", summary):
        yield make_plot(title, partial(_contour, shown, target))
    if len(summary.directions) == 1:
        yield make_plot("Values on the way", partial(_intermediate_values, few), note)


def _targets(title: str, summary: Summary) -> Iterator[tuple[str, dict[str, Any]]]:
    """The title and the arguments of a plot that shows one objective, for each of them."""
    if len(summary.metrics) == 1:
        yield title, {"target_name": plot_text(summary.metrics[0])}
        return
    for number, metric in enumerate(summary.metrics):
        yield f"{title}: {metric}", {"target": partial(_value, number=number), "target_name": plot_text(metric)}


def _value(trial: "FrozenTrial", *, number: int) -> float:
    value: float = trial.values[number]
    return value


def _of_completed(draw: "Callable[..., Figure]", study: "Study", target: dict[str, Any]) -> "Figure":
    if not _completed(study):
        raise NotDrawnError("needs a completed trial")
    return draw(study, **target)


def _importances(study: "Study") -> "Figure":
    from optuna.visualization import plot_param_importances

    names = _varying(study)
    if not names:
        raise NotDrawnError("needs at least two completed trials that differ in a parameter")
    return plot_param_importances(study, params=names)


def _varying(study: "Study") -> list[str]:
    """Parameters with more than one value among the completed trials."""
    values: dict[str, set[Any]] = {}
    for trial in _completed(study):
        for name, value in trial.params.items():
            values.setdefault(name, set()).add(value)
    return [name for name, found in values.items() if len(found) > 1]


def _contour(study: "Study", target: dict[str, Any]) -> "Figure":
    from optuna.importance import get_param_importances
    from optuna.visualization import plot_contour

    names = _varying(study)
    if len(names) < 2:
        raise NotDrawnError("needs two parameters that vary among the completed trials")
    shares = get_param_importances(study, params=names, target=target.get("target"))
    return plot_contour(study, params=list(shares)[:2], **target)


def _intermediate_values(study: "Study") -> "Figure":
    from optuna.visualization import plot_intermediate_values

    if not any(trial.intermediate_values for trial in study.get_trials(deepcopy=False)):
        raise NotDrawnError("no trial has reported a value on its way")
    return plot_intermediate_values(study)


def _completed(study: "Study") -> "list[FrozenTrial]":
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
