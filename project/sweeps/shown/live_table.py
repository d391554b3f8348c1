"""What the terminal shows of a sweep: a table of what runs, in place, or plain lines where there is no terminal."""

import logging
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from project.common.wording import clock, one_line
from project.sweeps.shown.live_lines import Line, status_line, table_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from project.sweeps.shown.live_wrapping import WrappedRows

log = logging.getLogger(__name__)

_PLAIN_SIGNS = str.maketrans("━╌…", "#-~")


@dataclass(frozen=True, kw_only=True)
class SlotView:
    """A trial that runs.

    Args:
        number: In the study.
        params_text: Its parameters, shortened (`wording.params_text`).
        state: Of its rank 0, as in the registry: `training`, `validating`, ….
        step: Optimizer steps done; None before the first.
        total_steps: None when it is not known.
        value: The last one that it reported.
        seconds: Since it began.
    """

    number: int
    params_text: str
    state: str
    step: int | None = None
    total_steps: int | None = None
    value: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class BestView:
    """The best trial so far.

    Args:
        n_front: How many trials no other one beats; more than one objective only.
    """

    number: int
    values: tuple[float, ...]
    params_text: str = ""
    n_front: int | None = None


@dataclass(frozen=True, kw_only=True)
class SweepView:
    """All that is shown of a sweep at one moment; plain data.

    Args:
        n_done: Trials that count: completed, pruned, finally failed.
        n_pruned: Of them.
        n_failed: Of them.
        n_waiting: Trials that were put back.
        n_elsewhere: Trials that other shells run.
        last_cause: Of the last failure.
        seconds_left: None when it is not known.
    """

    study: str
    n_trials: int | None
    n_done: int
    slots: Sequence[SlotView] = ()
    n_pruned: int = 0
    n_failed: int = 0
    n_waiting: int = 0
    n_elsewhere: int = 0
    best: BestView | None = None
    last_cause: str = ""
    seconds_left: float | None = None


def seconds_left(
    finished_s: Sequence[float], *, running_s: Sequence[float], n_to_begin: int, n_slots: int
) -> float | None:
    """Returns how long the rest of a sweep will take if trials go on as they did; None before the first ended.

    Args:
        finished_s: How long each trial took that ended.
        running_s: Since when each running one runs.
        n_to_begin: Trials that are still to begin.
        n_slots: Trials at once.
    """
    if not finished_s:
        return None
    mean = sum(finished_s) / len(finished_s)
    rests = [max(0.0, mean - passed) for passed in running_s]
    return max([*rests, (sum(rests) + n_to_begin * mean) / max(1, n_slots)])


class LiveTable:
    """Shows a sweep while it runs, from main's own loop: there is no thread.

    On a terminal a table at the bottom, log lines above it. Elsewhere (a pipe, CI, `TERM=dumb`) a log line for each
    trial that begins or ends, and one on the whole every so often. Both go to stderr.

    Args:
        refresh_s: Least seconds between two updates of the table.
        line_every_s: Seconds between two lines on the whole where there is no terminal.
    """

    def __init__(self, *, refresh_s: float = 0.2, line_every_s: float = 30.0) -> None:
        self._refresh_s = refresh_s
        self._line_every_s = line_every_s
        self._shown_at_s = time.monotonic()
        self._live: Live | None = None
        self._lines: list[Line] = []
        self._wrapped: WrappedRows | None = None

    @property
    def is_live(self) -> bool:
        """Whether there is a table, which begins with `__enter__`."""
        return self._live is not None

    def __enter__(self) -> "LiveTable":
        from rich.console import Console
        from rich.live import Live

        from project.sweeps.shown.live_wrapping import WrappedRows

        console = Console(stderr=True, highlight=False)
        if _takes_a_table(console):
            # Refreshed by us: a thread of its own would wake up while main starts or ends processes.
            self._live = Live(
                console=console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
                vertical_overflow="crop",
                get_renderable=self._render,
            )
            self._live.start()
            self._wrapped = WrappedRows(console, lambda: [line.cells for line in self._lines])
            console.push_render_hook(self._wrapped)
            console.show_cursor(True)  # a killed main could not show it again
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            if self._wrapped is not None:
                live.console.control(self._wrapped.erasure())
                live.console.pop_render_hook()
            self._lines = []
            live.stop()

    @property
    def is_due(self) -> bool:
        """Whether `update` would show something now."""
        passed_s = time.monotonic() - self._shown_at_s
        if self._live is None:
            return passed_s >= self._line_every_s
        return not self._lines or passed_s >= self._refresh_s

    def update(self, view: SweepView) -> None:
        """Shows the sweep as it is now; does nothing when that was done a moment ago."""
        if not self.is_due:
            return
        self._shown_at_s = time.monotonic()
        if self._live is None:
            log.info("%s", one_line(status_line(view)))
        else:
            self._draw(self._live, view)

    def begin(self, number: int, params_text: str) -> None:
        """Says that a trial begins."""
        log.info("%s", one_line(f"trial {number} begins: {params_text}"), extra={"terminal": not self.is_live})

    def end(self, number: int, ending: str, seconds: float, *, value_text: str = "", cause: str | None = None) -> None:
        """Says how a trial ended; above the table, too.

        Args:
            ending: `completed`, `pruned`, `failed`, `interrupted`, ….
            value_text: What it reached.
            cause: Why it did not end well.
        """
        reached = f": {value_text}" if value_text else ""
        why = f": {cause}" if cause else ""
        level = logging.WARNING if cause else logging.INFO
        log.log(level, "%s", one_line(f"trial {number} {ending} after {clock(seconds)}{reached}{why}"))

    def _draw(self, live: "Live", view: SweepView) -> None:
        console = live.console
        self._lines = table_lines(view, width=console.width - 1, height=console.height - 1)
        live.refresh()

    def _render(self) -> "Text":
        from rich.text import Text

        text = Text(no_wrap=True, overflow="ignore", end="")
        for position, line in enumerate(self._lines):
            text.append(("\n" if position else "") + self._encodable(line.text), style=line.style)
        return text

    def _encodable(self, text: str) -> str:
        encoding = "utf-8" if self._live is None else self._live.console.encoding
        if encoding.startswith("utf"):
            return text
        return text.translate(_PLAIN_SIGNS).encode(encoding, "replace").decode(encoding)


def _takes_a_table(console: "Console") -> bool:
    return console.is_interactive and console.file.isatty() and not (os.environ.get("CI") or not os.environ.get("TERM"))
