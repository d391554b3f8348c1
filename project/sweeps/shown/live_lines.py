"""The lines of the live table, fitted to a terminal's width and height."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from project.common.files.secrets import mask_text
from project.common.wording import about, clock, number, numbers, one_line

if TYPE_CHECKING:
    from project.sweeps.shown.live_table import BestView, SlotView, SweepView

_BAR_W = 10
_WIDE = 84  # columns from which there is room for the bar and whole states
_GAP = "  "
_HEAD = ("trial", "parameters", "state", "step", "", "value", "time")
_PARAMS, _BAR = 1, 4
_TO_THE_RIGHT = frozenset({"trial", "step", "value", "time"})
_LEAST_PARAMS_W = 8


@dataclass(frozen=True)
class Line:
    """A line and its style."""

    text: str
    style: str = ""

    @property
    def cells(self) -> int:
        """Columns that it takes."""
        from rich.cells import cell_len

        return cell_len(self.text)


def table_lines(view: "SweepView", *, width: int, height: int) -> list[Line]:
    """Returns the table of a sweep, no line longer than `width`, no more of them than `height`.

    What does not fit is left out from the trials that run; their number is told.
    """
    below = _below(view)
    room = max(1, height - 2 - len(below))
    shown = view.slots if len(view.slots) <= room else view.slots[: room - 1]
    lines = [Line(status_line(view, with_best=False), "bold"), *_rows(shown, width)]
    if len(shown) < len(view.slots):
        lines.append(Line(f"and {len(view.slots) - len(shown)} more trials", "dim"))
    return [Line(fit(line.text, width), line.style) for line in (*lines, *below)][: max(1, height)]


def status_line(view: "SweepView", *, with_best: bool = True) -> str:
    """The whole sweep in one line."""
    total = "" if view.n_trials is None else f" of {view.n_trials}"
    counts = (
        (view.n_pruned, "pruned"),
        (view.n_failed, "failed"),
        (len(view.slots), "running"),
        (view.n_elsewhere, "running elsewhere"),
        (view.n_waiting, "waiting"),
    )
    parts = [
        f"{one_line(view.study)}: {view.n_done}{total} done",
        *(f"{count} {word}" for count, word in counts if count),
    ]
    if with_best and view.best is not None:
        parts.append(_best(view.best))
    if view.seconds_left is not None:
        parts.append(f"about {about(view.seconds_left)} left")
    return ", ".join(parts)


def _best(best: "BestView") -> str:
    if best.n_front is not None:
        return f"best: {best.n_front} on the Pareto front, last trial {best.number}: {numbers(best.values)}"
    return f"best {numbers(best.values)} (trial {best.number})"


def _below(view: "SweepView") -> list[Line]:
    lines = []
    if view.best is not None:
        lines.append(Line(f"{_best(view.best)}{_GAP}{mask_text(one_line(view.best.params_text))}", "green"))
    if view.n_failed:
        lines.append(Line(f"{view.n_failed} failed, the last: {mask_text(one_line(view.last_cause))}", "red"))
    return lines


def _rows(slots: Sequence["SlotView"], width: int) -> list[Line]:
    is_wide = width >= _WIDE
    rows = [_HEAD, *(_cells(slot, state_w=18 if is_wide else 10) for slot in slots)]
    if not is_wide:
        rows = [(*row[:_BAR], *row[_BAR + 1 :]) for row in rows]
    columns = list(zip(*rows, strict=True))
    widths = [max(map(_cell_len, column)) for column in columns]
    taken = sum(widths) - widths[_PARAMS] + len(_GAP) * (len(widths) - 1)
    widths[_PARAMS] = min(widths[_PARAMS], max(_LEAST_PARAMS_W, width - taken))
    texts = (_GAP.join(map(_pad, row, widths, rows[0])).rstrip() for row in rows)
    return [Line(text, "" if position else "dim") for position, text in enumerate(texts)]


def _cells(slot: "SlotView", *, state_w: int) -> tuple[str, ...]:
    of_total = "" if slot.total_steps is None else f"/{slot.total_steps}"
    return (
        str(slot.number),
        mask_text(one_line(slot.params_text)),
        fit(one_line(slot.state), state_w),
        "" if slot.step is None else f"{slot.step}{of_total}",
        _bar(slot.step, slot.total_steps),
        number(slot.value),
        clock(slot.seconds),
    )


def _bar(step: int | None, total: int | None) -> str:
    if not total:
        return ""
    n_full = min(_BAR_W, _BAR_W * (step or 0) // total)
    return "━" * n_full + "╌" * (_BAR_W - n_full)


def _pad(text: str, width: int, head: str) -> str:
    fitted = fit(text, width)
    blanks = " " * (width - _cell_len(fitted))
    return blanks + fitted if head in _TO_THE_RIGHT else fitted + blanks


def fit(text: str, width: int) -> str:
    """Text cut to so many columns, with a sign that it was."""
    from rich.cells import set_cell_size

    return text if _cell_len(text) <= width else set_cell_size(text, max(0, width - 1)).rstrip() + "…"[: max(0, width)]


def _cell_len(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
