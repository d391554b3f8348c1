"""What was predicted: which labels were taken for which, and the mistakes that the model was surest of."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from project.common.pages.plots import NotDrawnError, plot_text

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_MOST_LABELS = 60  # of a picture in which the squares can be told apart
_MOST_COUNTS = 25  # labels with which there is room for a number in each square
_MISTAKES = 15


@dataclass(frozen=True)
class Predictions:
    """What the training counted, or the rows of eval.py's `predictions.parquet`.

    Args:
        split: Which rows they are.
        names: The labels that occur.
        mistakes: Text, label, prediction and its probability; the surest first.
    """

    split: str
    names: list[str]
    counts: list[list[int]]
    mistakes: list[tuple[str, str, str, float]]

    @property
    def n_rows(self) -> int:
        """How many were predicted."""
        return sum(map(sum, self.counts))

    @property
    def n_right(self) -> int:
        """How many of them rightly."""
        return sum(self.counts[i][i] for i in range(len(self.names)))


def read_counts(path: Path) -> Predictions | None:
    """Reads what the training counted; None where there is nothing, or something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        names, counts = [str(name) for name in found["labels"]], [[int(it) for it in row] for row in found["counts"]]
        if {len(names)} != {len(counts), *map(len, counts)}:
            return None
        return Predictions(str(found["split"]), names, counts, [])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def read_predictions(path: Path) -> Predictions | None:
    """Reads the file; None where there is none, or another one."""
    if not path.is_file():
        return None
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(path, columns=["text", "label", "prediction", "probabilities"])
        facts = table.schema.metadata or {}
        columns = {name: table.column(name).to_pylist() for name in table.column_names}
        return _counted(columns, split=facts.get(b"split", b"").decode(errors="replace"))
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return None


def _counted(columns: dict[str, list[Any]], *, split: str) -> Predictions:
    labels, guesses = [str(it) for it in columns["label"]], [str(it) for it in columns["prediction"]]
    names = sorted({*labels, *guesses})
    place = {name: i for i, name in enumerate(names)}
    counts = [[0] * len(names) for _ in names]
    mistakes = []
    for text, label, guess, shares in zip(columns["text"], labels, guesses, columns["probabilities"], strict=True):
        counts[place[label]][place[guess]] += 1
        if label != guess:
            mistakes.append((str(text), label, guess, float(max(shares))))
    return Predictions(split, names, counts, sorted(mistakes, key=lambda it: -it[3])[:_MISTAKES])


def confusion_matrix(found: Predictions) -> "Figure":
    """Rows are labels, columns predictions; the colour is the share of the row."""
    import plotly.graph_objects as go

    if len(found.names) > _MOST_LABELS:
        raise NotDrawnError(f"{len(found.names)} labels are too many for a picture")
    names = _distinct([plot_text(name) for name in found.names])
    shares = [[count / (sum(row) or 1) for count in row] for row in found.counts]
    figure = go.Figure(
        go.Heatmap(
            z=shares,
            x=names,
            y=names,
            customdata=found.counts,
            colorscale="Blues",
            zmin=0,
            zmax=1,
            xgap=1,
            ygap=1,
            text=found.counts,
            texttemplate="%{text}" if len(names) <= _MOST_COUNTS else None,
            hovertemplate="%{y} taken for %{x}: %{customdata} (%{z:.1%})<extra></extra>",
            colorbar={"title": "share of the label", "tickformat": ".0%"},
        )
    )
    figure.update_xaxes(title="prediction", type="category", automargin=True)
    figure.update_yaxes(title="label", type="category", autorange="reversed", automargin=True)
    figure.update_layout(height=180 + 30 * len(names))
    return figure


def _distinct(names: Sequence[str]) -> list[str]:
    """No two the same: plotly would draw them as one."""
    return [name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names)]
