"""The page of the report: HTML, every text escaped."""

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from project.common.files.layout import RunLayout
from project.common.files.secrets import mask_text
from project.sweeps.shown.report_timeline import COLOURS
from project.sweeps.shown.summary import Summary, TrialFacts
from project.sweeps.shown.wording import clock, number, short_names

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; background: #f3f5f7; margin: 0; }
main { max-width: 1360px; margin: 0 auto; padding: 24px; }
section { background: #fff; border: 1px solid #e1e6eb; border-radius: 8px; padding: 16px 20px; margin: 0 0 16px; }
h1 { font-size: 24px; margin: 0 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0 0 8px; overflow-wrap: anywhere; }
p { margin: 0 0 8px; }
.quiet, th { color: #5b6773; }
.badge { display: inline-block; border-radius: 10px; padding: 0 9px; margin-right: 6px; color: #fff; font-size: 13px; }
.badge.waiting { color: #1f2933; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(520px, 1fr)); gap: 0 32px; align-items: start; }
.plot { overflow-x: auto; }
.scroll { overflow: auto; max-height: 640px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 600; position: sticky; top: 0; background: #fff; white-space: nowrap; }
th[onclick] { cursor: pointer; }
td { max-width: 360px; }
td, th { padding: 4px 14px 4px 0; border-bottom: 1px solid #edf0f3; vertical-align: top; overflow-wrap: anywhere; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th.number { text-align: right; }
td.short { white-space: nowrap; }
tr.best td { background: #e9f6ef; }
.facts th { width: 1%; }
pre { background: #f6f8fa; padding: 8px 12px; border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; }
pre, code { font: 13px/1.45 ui-monospace, monospace; margin: 0; }
a { color: #1c62b9; text-decoration: none; }
a:hover { text-decoration: underline; }
"""

# Sorts a table by the column whose head is clicked; numbers as numbers.
_SCRIPT = """
function sortBy(head) {
  const body = head.closest("table").tBodies[0], column = head.cellIndex;
  const up = head.dataset.up = head.dataset.up === "1" ? "" : "1";
  const key = row => row.cells[column].dataset.key ?? row.cells[column].textContent;
  const compare = (a, b) => {
    const x = key(a), y = key(b);
    if (x === "" || y === "") return (x === "") - (y === "");
    const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
    return up ? order : -order;
  };
  body.append(...[...body.rows].sort(compare));
}
"""


def page(title: str, sections: Iterable[str], *, library: str) -> str:
    """The whole page.

    Args:
        library: The text of plotly.js.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n<script>{library}</script>\n"
        f"<script>{_SCRIPT}</script>\n</head>\n<body>\n<main>\n" + "\n".join(sections) + "\n</main>\n</body>\n</html>\n"
    )


def section(title: str, content: str, *, note: str = "") -> str:
    """A part of the page."""
    quiet = f'<p class="quiet">{_text(note)}</p>\n' if note else ""
    return f"<section>\n<h2>{_text(title)}</h2>\n{quiet}{content}\n</section>"


def header(summary: Summary, *, storage: str, now: datetime) -> str:
    """What study it is and how its trials ended."""
    objectives = zip(summary.directions, summary.metrics, strict=True)
    aim = ", ".join(f"{direction} {metric}" for direction, metric in objectives)
    badges = "".join(
        f'<span class="badge {ending}" style="background:{COLOURS[ending]}">{count} {ending}</span>'
        for ending, count in summary.counts.items()
    )
    return (
        f"<section>\n<h1>{_text(summary.study)}</h1>\n"
        f'<p class="quiet">{_text(aim)} · {_text(storage)} · as of {now:%Y-%m-%d %H:%M:%S}</p>\n'
        f"<p>{badges or 'There is no trial yet.'}</p>\n</section>"
    )


def best_section(summary: Summary, *, page_dir: Path) -> str:
    """The best trial, or the Pareto front."""
    if not summary.best:
        return section("Best trial", "<p>No trial was completed.</p>")
    if len(summary.best) > 1 or len(summary.directions) > 1:
        return section(f"Pareto front: {len(summary.best)} trials", _trial_table(summary, summary.best, page_dir))
    (best,) = summary.best
    facts = [(summary.metrics[0], _text(repr(best.values[0])))]
    if best.checkpoint is not None:
        facts.append(("checkpoint", f"<code>{_text(best.checkpoint)}</code>"))
    if best.folder is not None:
        facts.append(("folder", _link(best.folder, f"<code>{_text(best.folder)}</code>", page_dir)))
    if best.wandb_id is not None:
        facts.append(("W&B run", f"<code>{_text(best.wandb_id)}</code>"))
    params = [
        (name, f"<code>{_text('null' if value is None else value)}</code>") for name, value in best.params.items()
    ]
    content = (
        f'<div class="two">{_facts_table(facts)}{_facts_table(params)}</div>\n'
        f"<p></p><p>The same once more:</p>\n<pre>{_text(best.command())}</pre>"
    )
    return section(f"Best trial: {best.number}", content)


def failures_section(summary: Summary, *, page_dir: Path) -> str:
    """Every failure, those with one cause together."""
    groups = sorted(summary.failures_by_cause().items(), key=lambda it: -len(it[1]))
    if not groups:
        return section("Failures", "<p>None.</p>")
    rows = [
        f'<tr><td class="number">{len(trials)}</td><td>{_text(cause)}</td><td>'
        + " ".join(_link(trial.folder, str(trial.number), page_dir) for trial in trials)
        + "</td></tr>"
        for cause, trials in groups
    ]
    head = '<tr><th class="number">trials</th><th>cause</th><th>folders</th></tr>'
    return section("Failures", _table(head, rows))


def trials_section(summary: Summary, *, page_dir: Path) -> str:
    """All trials."""
    return section("All trials", _trial_table(summary, summary.trials, page_dir), note="A click on a head sorts.")


def _trial_table(summary: Summary, trials: Sequence[TrialFacts], page_dir: Path) -> str:
    names = list(dict.fromkeys(name for trial in summary.trials for name in trial.params))
    shown = short_names(names)
    best = {trial.number for trial in summary.best} if len(trials) > len(summary.best) else set()
    heads = [*_HEADS, *summary.metrics, *(shown[name] for name in names), "cause"]
    titles = [*_HEADS, *summary.metrics, *names, "cause"]
    n_numbers = len(_HEADS) - 1 + len(summary.metrics)
    head = "".join(
        f'<th title="{_text(title)}" onclick="sortBy(this)"{_CLASS if 0 < i <= n_numbers and i != 1 else ""}>'
        f"{_text(text)}</th>"
        for i, (text, title) in enumerate(zip(heads, titles, strict=True))
    )
    rows = []
    for trial in trials:
        values = [*trial.values, *[None] * (len(summary.metrics) - len(trial.values))]
        cells = [
            f'<td class="short" data-key="{trial.number}">{_trial_links(trial, page_dir)}</td>',
            f'<td class="short">{_ending(trial)}</td>',
            _number_cell(trial.seconds, clock),
            *(_number_cell(value, number) for value in values),
            *(_param_cell(trial, name) for name in names),
            f"<td>{_text(trial.cause or '')}</td>",
        ]
        rows.append(f"<tr{' class=best' if trial.number in best else ''}>{''.join(cells)}</tr>")
    return _table(f"<tr>{head}</tr>", rows)


_HEADS = ("trial", "ending", "time")
_CLASS = ' class="number"'


def _table(head: str, rows: Sequence[str]) -> str:
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>\n' + "\n".join(rows) + "\n</tbody></table></div>"


def _facts_table(facts: Sequence[tuple[str, str]]) -> str:
    return (
        '<table class="facts"><tbody>'
        + "".join(f"<tr><th>{_text(name)}</th><td>{value}</td></tr>" for name, value in facts)
        + "</tbody></table>"
    )


def _ending(trial: TrialFacts) -> str:
    text = _text(trial.ending)
    if trial.superseded_by is not None:
        text += f" by {trial.superseded_by}"
    if trial.continues is not None:
        text += f", from {trial.continues}"
    return f'<span style="color:{COLOURS[trial.ending]}">●</span> {text}'


def _number_cell(value: float | None, shown: Callable[[float], str]) -> str:
    return (
        '<td class="number"></td>' if value is None else f'<td class="number" data-key="{value!r}">{shown(value)}</td>'
    )


def _param_cell(trial: TrialFacts, name: str) -> str:
    if name not in trial.params:
        return "<td></td>"
    value = trial.params[name]
    if isinstance(value, float):
        return _number_cell(value, number)
    return f"<td>{_text('null' if value is None else value)}</td>"


def _trial_links(trial: TrialFacts, page_dir: Path) -> str:
    text = _link(trial.folder, str(trial.number), page_dir)
    picture = None if trial.folder is None else RunLayout(trial.folder).timeline_picture
    return text if picture is None or not picture.is_file() else f"{text} {_link(picture, 'timeline', page_dir)}"


def _link(path: Path | None, html: str, page_dir: Path) -> str:
    if path is None or not path.exists():
        return html
    return f'<a href="{escape(quote(os.path.relpath(path, page_dir)))}">{html}</a>'


def _text(value: Any) -> str:
    return escape(mask_text(str(value)))
