"""Writes the report of a run."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from project.common.files.atomic import atomic_file
from project.common.files.secrets import mask_override
from project.common.pages.html import escaped, facts_table, link, page, section, table
from project.common.pages.plots import make_plot, plot_sections
from project.common.wording import clock
from project.training.run_report.figures import comparison, curves
from project.training.run_report.predictions import Predictions, confusion_matrix, read_counts, read_predictions
from project.training.run_report.reading import RunFacts, read_facts

_COLOURS = {"completed": "#2f9e62", "running": "#3b7dd8", "pruned": "#b98400", "interrupted": "#b98400"}
_BAD = "#d03a3a"
_LONGEST_TEXT = 300


def write_run_report(run_dir: Path, out: Path | None = None) -> Path:
    """Writes the page and returns its path; the run may still go on.

    Args:
        out: None for `report.html` in the run's folder.

    Raises:
        ConfigError: It is no run's folder.
    """
    from plotly.offline import get_plotlyjs

    facts = read_facts(run_dir)
    path = facts.layout.report if out is None else out
    html = page(f"{facts.name} · run", _sections(facts, path.absolute().parent), library=get_plotlyjs())
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path, mode="wb", durable=False) as file:
        file.write(html.encode("utf-8", "backslashreplace"))
    return path


def _sections(facts: RunFacts, page_dir: Path) -> Iterator[str]:
    yield _header(facts, page_dir)
    yield section("Metrics", _metrics(facts))
    yield _side_by_side(plot_sections([comparison(facts), *curves(facts)]))
    yield from _predictions(facts)
    if facts.sample:
        yield section("Sample", _pre(facts.sample), note="what the model wrote at the end of its training")
    if facts.picture:
        note = "a row per process, a bar per state"
        yield section("Processes", f'<div class="scroll">{facts.picture}</div>', note=note)
    if facts.noted:
        yield section("Warnings and errors", _pre("\n".join(facts.noted)), note="the last lines of the log")
    yield section("Configuration", _configuration(facts))
    yield section("Environment", facts_table(_environment(facts)))


def _side_by_side(sections: Iterable[str]) -> str:
    return '<div class="plots">\n' + "\n".join(sections) + "\n</div>"


def _header(facts: RunFacts, page_dir: Path) -> str:
    colour = _COLOURS.get(facts.status, _BAD)
    when = f" · began {facts.began}" if facts.began else ""
    layout = facts.layout
    checkpoints = (layout.checkpoint("best"), layout.checkpoint("last"))
    files = (layout.config, layout.metrics_history, layout.run_log, *checkpoints)
    links = " · ".join(link(path, escaped(path.name), page_dir) for path in files if path.is_file())
    cause = facts.outcome.get("cause")
    tags, notes = facts.config.get("tags"), facts.config.get("notes")
    return (
        f"<section>\n<h1>{escaped(facts.name)}</h1>\n"
        f'<p class="quiet">{escaped(layout.run_dir)}{when} · as of {time.strftime("%Y-%m-%d %H:%M:%S")}</p>\n'
        f'<p><span class="badge" style="background:{colour}">{escaped(facts.status)}</span>'
        + (f" {escaped(', '.join(map(str, tags)))}" if isinstance(tags, list) and tags else "")
        + "</p>\n"
        + (f"{_pre(cause)}<p></p>\n" if cause else "")
        + (f"<p>{escaped(notes)}</p>\n" if isinstance(notes, str) and notes else "")
        + f"<p>{links}</p>\n</section>"
    )


def _metrics(facts: RunFacts) -> str:
    if not facts.rows:
        return "<p>There is no final value.</p>"
    return _records_table(facts.rows)


def _records_table(records: list[dict[str, Any]]) -> str:
    """A column per key; a click on a head sorts."""
    columns = list(dict.fromkeys(key for record in records for key in record))
    is_number = {key: all(_is_number(record.get(key)) for record in records) for key in columns}
    head = "".join(
        f'<th onclick="sortBy(this)"{" class=number" if is_number[key] else ""}>{escaped(key)}</th>' for key in columns
    )
    rows = ("".join(_cell(record.get(key), is_number[key]) for key in columns) for record in records)
    return table(f"<tr>{head}</tr>", [f"<tr>{row}</tr>" for row in rows])


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _cell(value: Any, is_number: bool) -> str:
    if value is None:
        return '<td class="number"></td>' if is_number else "<td></td>"
    if is_number:
        shown = f"{value:.4f}" if isinstance(value, float) and math.isfinite(value) else str(value)
        return f'<td class="number" data-key="{value!r}">{escaped(shown)}</td>'
    return f"<td>{escaped(_short(str(value)))}</td>"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _predictions(facts: RunFacts) -> Iterator[str]:
    found = read_predictions(facts.layout.predictions) or read_counts(facts.layout.confusion)
    if found is None or not found.names:
        return
    title = f"Confusion matrix: {found.split or 'rows'}, {found.n_right} of {found.n_rows} right"
    yield from plot_sections([make_plot(title, lambda: confusion_matrix(found))])
    if found.mistakes:
        yield section("The surest mistakes", _mistakes(found))
    elif found.n_right < found.n_rows:
        command = f"python eval.py ckpt={facts.layout.run_dir} split={found.split}"
        yield section("The surest mistakes", _pre(command), note="this command writes the predictions that tell them")


def _mistakes(found: Predictions) -> str:
    keys = ("text", "label", "prediction", "probability")
    return _records_table([dict(zip(keys, row, strict=True)) for row in found.mistakes])


def _configuration(facts: RunFacts) -> str:
    typed = _pre(" ".join(mask_override(it) for it in facts.overrides)) if facts.overrides else "<p>None.</p>"
    whole = f'<div class="scroll">{_pre(facts.config_text)}</div>'
    return f"<p>Typed:</p>\n{typed}\n<p></p><details><summary>All of it</summary>\n{whole}</details>"


def _environment(facts: RunFacts) -> Iterator[tuple[str, str]]:
    outcome = facts.outcome
    for name in ("start_method", "fallback", "attempts", "git_commit"):
        if outcome.get(name) is not None:
            yield name.replace("_", " "), f"<code>{escaped(outcome[name])}</code>"
    if isinstance(seconds := outcome.get("seconds"), (int, float)):
        yield "time", escaped(clock(seconds))
    command = outcome.get("command")
    if isinstance(command, list):
        yield "command", f"<code>{escaped(' '.join(mask_override(str(it)) for it in command))}</code>"
    for group in ("machine", "versions"):
        found = outcome.get(group)
        if isinstance(found, Mapping):
            yield from ((str(name), f"<code>{escaped(_listed(value))}</code>") for name, value in found.items())


def _listed(value: Any) -> Any:
    return value if not isinstance(value, list) else ", ".join(map(str, value)) or "none"


def _pre(text: Any) -> str:
    return f"<pre>{escaped(text)}</pre>"
