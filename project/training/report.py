"""What a run writes about itself at its start and end, and what it prints last."""

import logging
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from project.common.devices.inventory import nvml_devices, visible
from project.common.files.atomic import atomic_file, write_json
from project.common.files.layout import RunLayout
from project.common.files.secrets import mask_config, mask_override
from project.common.process_registry import read_run
from project.common.processes import logs, timeline
from project.common.processes.outcome import Outcome, Status

log = logging.getLogger(__name__)

PACKAGES = ("torch", "lightning", "transformers", "datasets", "hydra-core", "omegaconf", "optuna", "wandb")


def remove_folder(folder: Path) -> None:
    """Removes the folder of a trial that could not begin."""
    shutil.rmtree(folder, ignore_errors=True)


def write_start(layout: RunLayout, config: dict[str, Any], overrides: list[str]) -> None:
    """Writes `config.yaml` and `overrides.yaml`, secrets masked."""
    with atomic_file(layout.config) as file:
        _dump(mask_config(config), file)
    with atomic_file(layout.overrides) as file:
        _dump([mask_override(override) for override in overrides], file)


def _dump(value: Any, file: Any) -> None:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast where libyaml is
    yaml.dump(value, file, Dumper=dumper, sort_keys=False, allow_unicode=True)


def write_end(layout: RunLayout, outcome: Outcome, *, result: dict[str, Any] | None, facts: dict[str, Any]) -> None:
    """Writes `outcome.json` and `timeline.json`."""
    processes = [
        {
            "label": record.identity.label,
            "pid": record.key.pid,
            "attempt": record.identity.attempt,
            "state": record.state,
            "step": (record.heartbeat or {}).get("step"),
            "outcome": record.outcome,
        }
        for record in read_run(layout.run_dir)
    ]
    write_json(
        layout.outcome,
        {
            **{key: value for key, value in outcome.as_dict().items() if key != "traceback"},
            **facts,
            "result": result,
            "git_commit": git_commit(),
            "versions": versions(),
            "machine": machine(),
            "command": [mask_override(argument) for argument in sys.argv],
            "processes": processes,
        },
    )
    timeline.write_timeline(layout.run_dir)


@cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """What the run had to run on."""
    return {
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "devices": [device.name for device in visible(nvml_devices(), os.environ)],
    }


@cache
def git_commit() -> str | None:
    """Commit of the code that ran; None outside a repository or without git."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def print_end(outcome: Outcome, result: dict[str, Any] | None, *, layout: RunLayout, resume: str) -> None:
    """Prints the metrics and the folder of a completed run last; of another one its cause, once.

    A reader that is gone, as in `| head -1`, changes nothing about how the run ended.
    """
    try:
        _print_end(outcome, result, layout=layout, resume=resume)
    except OSError as error:
        log.debug("the end could not be printed: %s", error)
    logs.drop_what_nobody_reads()


def _print_end(outcome: Outcome, result: dict[str, Any] | None, *, layout: RunLayout, resume: str) -> None:
    if outcome.status is Status.COMPLETED:
        print_metrics(result or {})
        print(f"run folder: {layout.run_dir}")
        return
    if layout.run_dir.is_dir():
        print(f"run folder: {layout.run_dir}", file=sys.stderr)
    last = layout.checkpoint("last")
    if last.exists():
        way = f"resume={layout.run_dir}" if resume == "never" else "the same command"
        print(f"last checkpoint: {last}; {way} goes on from it", file=sys.stderr)
    if outcome.traceback and outcome.exception and outcome.exit_code != 2 and layout.run_log.exists():
        print(f"the traceback is in {layout.run_log}", file=sys.stderr)
    print(f"{outcome.status}: {outcome.cause}", file=sys.stderr)


def print_metrics(result: dict[str, Any]) -> None:
    """Prints the final table."""
    from rich.console import Console
    from rich.table import Table

    rows = result.get("rows") or [{"name": name, "value": value} for name, value in result.get("metrics", {}).items()]
    if not rows:
        return
    columns = sorted({key for row in rows for key in row}, key=_place)
    table = Table(*columns)
    for row in rows:
        table.add_row(*(_text(row.get(column)) for column in columns))
    Console().print(table)


def _place(column: str) -> tuple[int, str]:
    """The name first, then what training, validation and testing gave: the same order in every run."""
    split = column.partition("/")[0]
    return ({"model": 0, "name": 0, "train": 1, "val": 2, "test": 3}.get(split, 4), column)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def table_rows(metrics: Mapping[str, float], *, name: str) -> list[dict[str, Any]]:
    """One row for what was trained, and one for each that is named before the split: `char_ngrams/test/acc`."""
    rows: dict[str, dict[str, Any]] = {}
    for metric, value in metrics.items():
        other, _, rest = metric.partition("/")
        row, column = (other, rest) if "/" in rest else (name, metric)
        rows.setdefault(row, {"model": row})[column] = value
    return list(rows.values())
