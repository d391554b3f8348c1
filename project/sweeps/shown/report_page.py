"""The page of the report: HTML, every text escaped."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from project.common.files.layout import RunLayout
from project.common.pages.html import escaped, facts_table, link, section, table
from project.common.wording import clock, number, short_names
from project.sweeps.shown.report_timeline import COLOURS
from project.sweeps.shown.summary import Summary, TrialFacts


def header(summary: Summary, *, storage: str, now: datetime) -> str:
    """What study it is and how its trials ended."""
    objectives = zip(summary.directions, summary.metrics, strict=True)
    aim = ", ".join(f"{direction} {metric}" for direction, metric in objectives)
    badges = "".join(
        f'<span class="badge {ending}" style="background:{COLOURS[ending]}">{count} {ending}</span>'
        for ending, count in summary.counts.items()
    )
    return (
        f"<section>\n<h1>{escaped(summary.study)}</h1>\n"
        f'<p class="quiet">{escaped(aim)} · {escaped(storage)} · as of {now:%Y-%m-%d %H:%M:%S}</p>\n'
        f"<p>{badges or 'There is no trial yet.'}</p>\n</section>"
    )


def best_section(summary: Summary, *, page_dir: Path) -> str:
    """The best trial, or the Pareto front."""
    if not summary.best:
        return section("Best trial", "<p>No trial was completed.</p>")
    if len(summary.best) > 1 or len(summary.directions) > 1:
        return section(f"Pareto front: {len(summary.best)} trials", _trial_table(summary, summary.best, page_dir))
    (best,) = summary.best
    facts = [(summary.metrics[0], escaped(repr(best.values[0])))]
    if best.checkpoint is not None:
        facts.append(("checkpoint", f"<code>{escaped(best.checkpoint)}</code>"))
    if best.folder is not None:
        facts.append(("folder", link(best.folder, f"<code>{escaped(best.folder)}</code>", page_dir)))
    if best.wandb_id is not None:
        facts.append(("W&B run", f"<code>{escaped(best.wandb_id)}</code>"))
    params = [
        (name, f"<code>{escaped('null' if value is None else value)}</code>") for name, value in best.params.items()
    ]
    content = (
        f'<div class="two">{facts_table(facts)}{facts_table(params)}</div>\n'
        f"<p></p><p>The same once more:</p>\n<pre>{escaped(best.command())}</pre>"
    )
    return section(f"Best trial: {best.number}", content)


def failures_section(summary: Summary, *, page_dir: Path) -> str:
    """Every failure, those with one cause together."""
    groups = sorted(summary.failures_by_cause().items(), key=lambda it: -len(it[1]))
    if not groups:
        return section("Failures", "<p>None.</p>")
    rows = [
        f'<tr><td class="number">{len(trials)}</td><td>{escaped(cause)}</td><td>'
        + " ".join(link(trial.folder, str(trial.number), page_dir) for trial in trials)
        + "</td></tr>"
        for cause, trials in groups
    ]
    head = '<tr><th class="number">trials</th><th>cause</th><th>folders</th></tr>'
    return section("Failures", table(head, rows))


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
        f'<th title="{escaped(title)}" onclick="sortBy(this)"{_CLASS if 0 < i <= n_numbers and i != 1 else ""}>'
        f"{escaped(text)}</th>"
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
            f"<td>{escaped(trial.cause or '')}</td>",
        ]
        rows.append(f"<tr{' class=best' if trial.number in best else ''}>{''.join(cells)}</tr>")
    return table(f"<tr>{head}</tr>", rows)


_HEADS = ("trial", "ending", "time")
_CLASS = ' class="number"'


def _ending(trial: TrialFacts) -> str:
    text = escaped(trial.ending)
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
    return f"<td>{escaped('null' if value is None else value)}</td>"


def _trial_links(trial: TrialFacts, page_dir: Path) -> str:
    text = link(trial.folder, str(trial.number), page_dir)
    picture = None if trial.folder is None else RunLayout(trial.folder).timeline_picture
    return text if picture is None or not picture.is_file() else f"{text} {link(picture, 'timeline', page_dir)}"
