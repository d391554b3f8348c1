"""The plot of which trial ran when."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from project.common.pages.plots import NotDrawnError, Plot, make_plot, plot_text
from project.common.wording import clock, numbers
from project.sweeps.shown.summary import ENDINGS, Summary, TrialFacts

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLOURS = {
    "completed": "#2f9e62",
    "pruned": "#e0a100",
    "failed": "#d03a3a",
    "refused": "#a05252",
    "superseded": "#9aa3ad",
    "running": "#3b7dd8",
    "waiting": "#cfd6de",
}


def timeline(summary: Summary, now: datetime) -> Plot:
    """Returns which trial ran when: a row per place of each shell, a bar per trial."""
    return make_plot("Which trial ran when", lambda: _timeline(summary, now))


def _timeline(summary: Summary, now: datetime) -> "Figure":
    import plotly.graph_objects as go

    rows = _rows(summary.trials, now)
    if not rows:
        raise NotDrawnError("no trial has begun")
    figure = go.Figure()
    for ending in ENDINGS:
        bars = [(row, trial) for row, trial in rows if trial.ending == ending]
        if bars:
            figure.add_bar(
                orientation="h",
                name=ending,
                y=[row for row, _ in bars],
                base=[trial.began for _, trial in bars],
                x=[_seconds(trial, now) * 1000 for _, trial in bars],
                marker={"color": COLOURS[ending], "line": {"color": "white", "width": 1}},
                text=[str(trial.number) for _, trial in bars],
                textposition="inside",
                insidetextanchor="middle",
                hovertext=[_hover(trial, now) for _, trial in bars],
                hoverinfo="text",
            )
    names = list(dict.fromkeys(row for row, _ in sorted(rows, key=lambda it: it[0])))
    figure.update_layout(barmode="overlay", height=130 + 26 * len(names), showlegend=True, bargap=0.15)
    figure.update_xaxes(type="date")
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], automargin=True)
    return figure


def _rows(trials: Sequence[TrialFacts], now: datetime) -> list[tuple[str, TrialFacts]]:
    """Each trial that has begun, in the first row of its shell that was free."""
    free_at: dict[str, list[datetime]] = {}
    rows = []
    for trial in sorted((it for it in trials if it.began), key=lambda it: it.began or now):
        began = trial.began or now
        ends = free_at.setdefault(trial.owner, [])
        place = next((i for i, end in enumerate(ends) if end <= began), len(ends))
        ends[place : place + 1] = [trial.ended or now]
        rows.append((f"{trial.owner or 'shell'} · {place + 1}", trial))
    return rows


def _seconds(trial: TrialFacts, now: datetime) -> float:
    return ((trial.ended or now) - (trial.began or now)).total_seconds()


def _hover(trial: TrialFacts, now: datetime) -> str:
    lines = [f"trial {trial.number}: {trial.ending}", clock(_seconds(trial, now)), numbers(trial.values)]
    if trial.continues is not None:
        lines.append(f"goes on from trial {trial.continues}")
    return "<br>".join(plot_text(line) for line in (*lines, trial.cause or "") if line)
