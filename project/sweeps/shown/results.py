"""What a sweep leaves: `optimization_results.yaml`, and the last lines on the terminal."""

import logging
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from project.common.files.atomic import atomic_file
from project.common.files.secrets import mask_text
from project.common.processes import logs
from project.common.wording import numbers, one_line
from project.sweeps.shown.summary import RERUN, HasTypes, Summary, TrialFacts, summarize

if TYPE_CHECKING:
    from optuna import Study

log = logging.getLogger(__name__)

RESULTS_FILE = "optimization_results.yaml"
PACKAGE = __name__.partition(".")[0]
NOTHING = "no trial was completed"
_SHOWN_FRONT = 20  # rows of the Pareto front that are printed; the file has all
_STYLES = {"best": "bold green", "cause": "red", "head": "bold"}


def write_results(
    sweep_dir: Path, study: "Study", space: "HasTypes | None" = None, command: Sequence[str] = RERUN
) -> Path:
    """Writes what was found, whether or not anything was; returns the file.

    The keys of hydra-optuna-sweeper are there, with more beside them.

    Args:
        command: What starts one run.
    """
    import yaml

    path = sweep_dir / RESULTS_FILE
    results = as_results(summarize(study, sweep_dir, space), command)
    with atomic_file(path) as file:
        yaml.safe_dump(results, file, sort_keys=False, allow_unicode=True, width=10_000)
    return path


def as_results(summary: Summary, command: Sequence[str] = RERUN) -> dict[str, Any]:
    """The content of the results file."""
    results: dict[str, Any] = {"name": "optuna"}
    facts = {"study": summary.study, "counts": summary.counts}
    if len(summary.directions) > 1:
        solutions = [
            {"params": _plain(it.params), "values": list(it.values)} | _more(it, command) for it in summary.best
        ]
        results |= {"solutions": solutions, **facts, "directions": list(summary.directions)}
    else:
        best = summary.best[0] if summary.best else None
        results |= {"best_params": _plain(best.params) if best else {}, "best_value": best.values[0] if best else None}
        results |= (_more(best, command) if best else {}) | facts | {"direction": summary.directions[0]}
    return results if summary.best else results | {"note": NOTHING}


def _more(trial: TrialFacts, command: Sequence[str]) -> dict[str, Any]:
    return {
        "number": trial.number,
        "folder": None if trial.folder is None else str(trial.folder),
        "checkpoint": trial.checkpoint,
        "wandb_id": trial.wandb_id,
        "overrides": list(trial.overrides),
        "command": trial.command(command),
    }


def _plain(value: Any) -> Any:
    """As YAML knows it; what it does not know, such as a number of numpy's, by its nearest kin."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    return _plain(value.item()) if hasattr(value, "item") else str(value)


def print_end(
    study: "Study", *, sweep_dir: Path, space: "HasTypes | None" = None, command: Sequence[str] = RERUN
) -> None:
    """Prints what was found and what failed; a reader that is gone, as in `| head -1`, changes nothing."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False, markup=False)
    try:
        for text, style in end_lines(summarize(study, sweep_dir, space), sweep_dir, command):
            console.print(Text(mask_text(text), style=_STYLES.get(style, "")))
        sys.stdout.flush()
    except OSError as error:
        log.debug("the end could not be printed: %s", error)
    logs.drop_what_nobody_reads()


def end_lines(summary: Summary, sweep_dir: Path, command: Sequence[str] = RERUN) -> Iterator[tuple[str, str]]:
    """Yields the last lines, each with what it is: `head`, `best`, `cause` or nothing of these."""
    yield from _best_lines(summary, command)
    counts = ", ".join(f"{count} {ending}" for ending, count in summary.counts.items())
    yield f"trials: {counts or 'none'}", "head"
    if repeated := summary.repeated():
        yield f"  {_numbers(repeated)}: tried a point that another one had tried before", ""
    if taken := summary.taken_over():
        yield f"  {_numbers(taken)}: not run; took over the value of an equal point", ""
    for cause, trials in summary.failures_by_cause().items():
        yield f"  {_numbers(trials)}: {one_line(cause)}", "cause"
        yield f"    {_folders(trials)}", ""
    folder = shlex.quote(shown_path(sweep_dir))
    yield f"sweep folder: {shown_path(sweep_dir)}", ""
    yield f"report:    python -m {PACKAGE}.report {folder}", ""
    yield f"dashboard: make dashboard SWEEP={folder}", ""


def _best_lines(summary: Summary, command: Sequence[str]) -> Iterator[tuple[str, str]]:
    metric = ", ".join(summary.metrics)
    if not summary.best:
        yield f"{summary.study}: {NOTHING}", "cause"
    elif len(summary.directions) == 1:
        (best,) = summary.best
        yield f"{summary.study}: best {metric} {numbers(best.values)}, trial {best.number}", "best"
        yield from _facts(best, command)
    else:
        yield f"{summary.study}: {len(summary.best)} trials on the Pareto front of {metric}", "best"
        for trial in summary.best[:_SHOWN_FRONT]:
            yield f"trial {trial.number}: {numbers(trial.values)}", "head"
            yield from _facts(trial, command)
        if len(summary.best) > _SHOWN_FRONT:
            yield f"and {len(summary.best) - _SHOWN_FRONT} more, all of them in {RESULTS_FILE}", ""


def _facts(trial: TrialFacts, command: Sequence[str]) -> Iterator[tuple[str, str]]:
    width = max(map(len, trial.params), default=0)
    for name, value in trial.params.items():
        yield f"  {name:<{width}}  {'null' if value is None else one_line(str(value))}", ""
    if trial.checkpoint is not None:
        yield f"  checkpoint: {shown_path(Path(trial.checkpoint))}", ""
    if trial.folder is not None:
        yield f"  folder: {shown_path(trial.folder)}", ""
    yield f"  again: {trial.command(command)}", ""


def _numbers(trials: Sequence[TrialFacts]) -> str:
    return f"trial{'s' if len(trials) > 1 else ''} {', '.join(str(trial.number) for trial in trials)}"


def _folders(trials: Sequence[TrialFacts]) -> str:
    """The folders of several trials as a shell writes them: `sweeps/x/{3,7}`."""
    by_parent: dict[str, list[str]] = {}
    for trial in trials:
        if trial.folder is not None:
            by_parent.setdefault(shown_path(trial.folder.parent), []).append(trial.folder.name)
    return " ".join(
        f"{shlex.quote(parent)}/{names[0] if len(names) == 1 else '{' + ','.join(names) + '}'}"
        for parent, names in by_parent.items()
    )


def shown_path(path: Path) -> str:
    """As short as it can be typed from here."""
    here = Path(os.getcwd())
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
