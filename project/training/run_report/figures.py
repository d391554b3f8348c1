"""The plots of a run: its metrics over the steps, and its result beside the baselines."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from project.common.pages.plots import NotDrawnError, Plot, make_plot, plot_text
from project.training.run_report.reading import RunFacts

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_COLOURS = {"train": "#3b7dd8", "val": "#e07b00", "test": "#2f9e62"}
_OTHER = "#7a5fb0"
_MOST_POINTS = 2000  # of a line, which a screen shows
_MOST_PLOTS = 24
_LEGEND = {"orientation": "h", "y": -0.28, "yanchor": "top"}
_NOT_METRICS = ("step", "epoch", "time")


def curves(facts: RunFacts) -> Iterator[Plot]:
    """Yields a plot per metric, that of the objective first: each split's values over the optimizer steps."""
    lines = _lines(facts.history)
    if not lines:
        yield Plot("Curves", note="no value was logged")
        return
    metric = _metric(str(facts.objective.get("metric", "")))
    for name in sorted(lines, key=lambda it: (it != metric, it))[:_MOST_PLOTS]:
        yield make_plot(name, partial(_curve, lines[name]))
    if len(lines) > _MOST_PLOTS:
        yield Plot("More metrics", note=f"{len(lines) - _MOST_PLOTS} more are in {facts.layout.metrics_history.name}")


def _lines(history: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Metric, then key, then points."""
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for record in history:
        for key, value in record.items():
            if key not in _NOT_METRICS and (point := _point(record["step"], value)) is not None:
                lines.setdefault(_metric(key), {}).setdefault(key, []).append(point)
    return lines


def _point(step: Any, value: Any) -> tuple[float, float] | None:
    try:
        return float(step), float(value)
    except (TypeError, ValueError):
        return None


def _metric(key: str) -> str:
    return key.rpartition("/")[2].removesuffix("_step")


def _curve(lines: Mapping[str, list[tuple[float, float]]]) -> "Figure":
    import plotly.graph_objects as go

    figure = go.Figure()
    for key, points in lines.items():
        shown = points[:: math.ceil(len(points) / _MOST_POINTS)]
        is_step = key.endswith("_step")
        figure.add_scatter(
            x=[step for step, _ in shown],
            y=[value if math.isfinite(value) else None for _, value in shown],
            name=plot_text(key),
            mode="lines" if is_step else "lines+markers",
            opacity=0.45 if is_step else 1.0,
            line={"color": _COLOURS.get(key.partition("/")[0], _OTHER), "width": 1 if is_step else 2},
        )
    figure.update_layout(height=340, showlegend=True, legend=_LEGEND)
    figure.update_xaxes(title="step", rangemode="tozero")
    return figure


def comparison(facts: RunFacts) -> Plot:
    """The run's result beside the baselines, in the objective's metric."""
    return make_plot("Beside the baselines", partial(_comparison, facts))


def _comparison(facts: RunFacts) -> "Figure":
    import plotly.graph_objects as go

    metric = _metric(str(facts.objective.get("metric", "")))
    columns = [f"{split}/{metric}" for split in ("val", "test")]
    names = [plot_text(str(row.get("model", row.get("name", "")))) for row in facts.rows]
    if len(names) < 2:
        raise NotDrawnError("there is no baseline: `task.baselines` names what is fitted on the same rows")
    figure = go.Figure()
    for column in columns:
        values = [row.get(column) for row in facts.rows]
        numbers = [value if isinstance(value, (int, float)) and math.isfinite(value) else None for value in values]
        if any(value is not None for value in numbers):
            texts = ["" if value is None else f"{value:.4f}" for value in numbers]
            colour = _COLOURS[column.partition("/")[0]]
            figure.add_bar(
                y=names, x=numbers, orientation="h", text=texts, name=plot_text(column), marker={"color": colour}
            )
    if not figure.data:
        raise NotDrawnError(f"no row has a value of {metric or 'the objective'}")
    figure.update_layout(barmode="group", height=max(340, 120 + 44 * len(names)), legend=_LEGEND)
    figure.update_xaxes(title=plot_text(metric))
    figure.update_yaxes(type="category", autorange="reversed", automargin=True)
    return figure
