"""The plots of a page: each is drawn, or says why not."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from project.common.files.secrets import mask_text
from project.common.pages.html import section
from project.common.wording import one_line

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_CONFIG = {"displaylogo": False, "responsive": True}
_HEIGHT = 420
_LONGEST_TEXT = 32
_ROOM = 2400  # pixels of a figure that is better squeezed than scrolled


class NotDrawnError(Exception):
    """Says why there is no plot."""


@dataclass(frozen=True)
class Plot:
    """One plot, or why there is none.

    Args:
        title: Shown above it.
        figure: None when it could not be made.
        note: Shown below the title.
    """

    title: str
    figure: "Figure | None" = None
    note: str = ""


def make_plot(title: str, make: "Callable[[], Figure]", note: str = "") -> Plot:
    """The plot that `make` draws, or the reason why it did not."""
    try:
        figure = make()
    except Exception as error:  # noqa: BLE001 - one that cannot be drawn must not take the others with it
        return Plot(title, note=one_line(str(error) or type(error).__name__))
    figure.update_layout(template="plotly_white", title=None, margin={"t": 24, "r": 24, "b": 48, "l": 64})
    width = figure.layout.width  # of the slices: Optuna's is by their number
    figure.layout.width = width if width and width > _ROOM else None
    return Plot(title, figure, note)


def plot_sections(plots: Iterable[Plot]) -> Iterator[str]:
    """A part of the page for each plot."""
    from plotly.io import to_html

    for plot in plots:
        drawing = ""
        if plot.figure is not None:
            height = plot.figure.layout.height or _HEIGHT
            drawing = to_html(
                plot.figure, config=_CONFIG, include_plotlyjs=False, full_html=False, default_height=f"{height}px"
            )
        yield section(plot.title, f'<div class="plot">{drawing}</div>', note=plot.note)


def plot_text(text: str) -> str:
    """Text as a plot shows it: short, and no markup, of which Plotly knows a little."""
    text = mask_text(one_line(text))
    return escape(text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…", quote=False)
