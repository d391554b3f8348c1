"""Keeps a live display whole in a terminal that becomes narrower: it wraps the lines, and rich counts them once."""

from collections.abc import Callable, Sequence

from rich.console import Console, ConsoleRenderable, RenderHook
from rich.control import Control
from rich.segment import ControlType

_UP = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))


class WrappedRows(RenderHook):
    """Erases, before all that is printed, the rows by which the display has grown.

    Args:
        console: Of the display, which was started before.
        line_widths: Columns of each line that is shown now.
    """

    def __init__(self, console: Console, line_widths: Callable[[], Sequence[int]]) -> None:
        self._console = console
        self._line_widths = line_widths
        self._drawn: list[int] = []

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """What rich prints next: the display is part of it."""
        erasure = self.erasure()
        self._drawn = [min(cells, self._console.width) for cells in self._line_widths()]
        return [erasure, *renderables]

    def erasure(self) -> Control:
        """Moves the cursor up by the rows that rich does not know of."""
        n_more = sum(max(0, cells - 1) // self._console.width for cells in self._drawn)
        return Control(ControlType.CARRIAGE_RETURN, *_UP * n_more) if n_more else Control()
