"""The timeline of a run as a picture: a row per process, a bar per state, one sitting after the other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from project.common.process_registry import LEFT_OUT, ProcessRecord
from project.common.processes.timeline import state_ends
from project.common.tree_order import in_tree_order, indentation

_LABEL_W, _PLOT_W, _OUTCOME_W, _ROW_H, _TOP, _MARGIN = 190, 760, 190, 20, 46, 12
_GAP = 0.02  # of the width: the hours between a crash and the next start are not drawn
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#eeca3b", "#9d755d", "#ff9da6")
_WAITING = {"starting": "#c9c9c9", "serving": "#dddddd", "loading": "#d5dde6", LEFT_OUT: "#ffffff"}
_BAD = "#b00020"


@dataclass(frozen=True)
class _Axis:
    """Seconds since the epoch to pixels.

    Args:
        sittings: Begin and end of each time in which the run ran, in seconds since the epoch; what lies between two
            of them is cut out.
    """

    sittings: Sequence[tuple[float, float]]

    def x(self, when: float) -> float:
        """Where a moment lies."""
        number = max((i for i, (begin, _) in enumerate(self.sittings) if begin <= when), default=0)
        drawn = sum(end - begin for begin, end in self.sittings) or 1.0
        before = sum(end - begin for begin, end in self.sittings[:number])
        share = (before + when - self.sittings[number][0]) / drawn
        return _LABEL_W + (share * (1 - _GAP * (len(self.sittings) - 1)) + _GAP * number) * _PLOT_W


def timeline_svg(records: Iterable[ProcessRecord], *, title: str) -> str:
    """Returns the drawing.

    Args:
        records: Of one run.
        title: Shown above it.
    """
    rows = [(record, state_ends(record)) for record in in_tree_order(records) if record.history]
    axis = _Axis(_sittings((record.started, max([record.started, *ends])) for record, ends in rows))
    colours = _colours(record for record, _ in rows)
    bottom = _TOP + _ROW_H * (len(rows) + 1)
    content = [f'<text x="{_MARGIN}" y="18" font-weight="bold">{escape(title)}</text>', *_legend(colours)]
    for begin, end in axis.sittings:
        content += _ticks(axis, begin, end, bottom)
    for row, (record, ends) in enumerate(rows, start=1):
        content += _row(record, ends, axis, _TOP + _ROW_H * row, colours)
    width, height = _LABEL_W + _PLOT_W + _OUTCOME_W, bottom + 2 * _ROW_H
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(content)
        + "\n</svg>\n"
    )


def _sittings(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The times in which at least one process was there."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _colours(records: Iterable[ProcessRecord]) -> dict[str, str]:
    states = dict.fromkeys(state for record in records for state, _ in record.history if state != "ended")
    busy = [state for state in states if state not in _WAITING]
    return {state: _WAITING.get(state) or _COLOURS[busy.index(state) % len(_COLOURS)] for state in states}


def _legend(colours: dict[str, str]) -> list[str]:
    parts, x = [], float(_LABEL_W)
    for state, colour in colours.items():
        parts.append(f'<rect x="{x:g}" y="28" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{x + 15:g}" y="38">{escape(state)}</text>')
        x += 30 + 7 * len(state)
    return parts


def _ticks(axis: _Axis, begin: float, end: float, bottom: int) -> list[str]:
    step = _round_step((end - begin) / max(2, 8 // len(axis.sittings)))
    parts = []
    for number in range(int((end - begin) / step) + 1):
        x = axis.x(begin + number * step)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP + 16}" y2="{bottom}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#555">{number * step:g} s</text>')
    return parts


def _round_step(wished: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below what is wished, from 0.01 on."""
    size = 0.01
    while True:
        for factor in (1, 2, 5):
            if factor * size >= wished:
                return round(factor * size, 6)
        size *= 10


def _row(record: ProcessRecord, ends: list[float], axis: _Axis, top: int, colours: dict[str, str]) -> list[str]:
    label = f"{record.identity.label} ({record.key.pid})"
    parts = [f'<text x="{_MARGIN + 12 * indentation(record)}" y="{top + 14}">{escape(label)}</text>']
    last = record.history[0][1]
    for (state, begin), end in zip(record.history, ends, strict=False):
        left, right, last = axis.x(begin), axis.x(end), end
        tip = f"{label} {state}: {end - begin:.3f} s"
        parts.append(
            f'<rect x="{left:.1f}" y="{top + 2}" width="{max(right - left, 0.6):.1f}" height="{_ROW_H - 4}" '
            f'fill="{colours[state]}"><title>{escape(tip)}</title></rect>'
        )
    words = ending(record)
    if words:
        parts.append(f'<text x="{axis.x(last) + 4:.1f}" y="{top + 14}" fill="{_BAD}">✕ {escape(words)}</text>')
    return parts


def ending(record: ProcessRecord) -> str:
    """How a process ended that did not end well, in a few words; nothing for others."""
    if record.outcome is None:
        return "killed" if record.state == "killed" else ""
    if record.outcome["exit_code"] == 0:
        return ""
    return f"{record.outcome['status']} ({record.outcome['exit_code']})"
