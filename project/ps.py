"""Shows the processes of this user's runs: python -m project.ps [RUN …] [--json] [--watch] [--reap]."""

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from project.common.live_runs import LiveRun, pointed_runs
from project.common.process_registry import ProcessRecord, kill_remaining, read_run

if TYPE_CHECKING:
    from rich.console import RenderableType

_ORDER = {"main": 0, "server": 1, "trial": 2, "rank": 3, "worker": 4}
_COLUMNS = ("process", "pid", "state", "age", "cpu", "memory", "step", "last step")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit code."""
    options = _parser().parse_args(arguments)
    if options.reap:
        return _reap()
    if options.json:
        print(json.dumps([_as_json(folder) for folder in _folders(options.runs)], indent=1))
        return 0
    if options.watch:
        return _watch(options.runs)
    _print(_tables(options.runs))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m project.ps", description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path, help="run folders; none: every run that is alive")
    parser.add_argument("--json", action="store_true", help="plain data instead of tables")
    parser.add_argument("--watch", action="store_true", help="show again every second, in place, until Ctrl-C")
    parser.add_argument("--reap", action="store_true", help="end what runs left whose main process is gone")
    return parser


def _folders(runs: Iterable[Path]) -> list[Path]:
    named = list(runs)
    for folder in named:
        if not folder.is_dir():
            sys.exit(f"{folder}: no such run folder")
    return named or [run.run_dir for run in pointed_runs() if run.main.is_alive() or _is_left(run)]


def _is_left(run: LiveRun) -> bool:
    return any(record.key.is_alive() for record in read_run(run.run_dir))


def _reap() -> int:
    """Ends what is left of runs whose main is gone; what belongs to a living main is never touched."""
    for run in pointed_runs():
        if not run.main.is_local() or run.main.is_alive():
            continue
        for record in kill_remaining(run.run_dir):
            print(f"ended {record.identity.label} (pid {record.key.pid}) of {run.run_dir}")
        run.pointer.unlink(missing_ok=True)
    return 0


def _as_json(folder: Path) -> dict[str, Any]:
    rows = [record.as_dict() | {"state": record.state} | _usage(record) for record in _sorted(read_run(folder))]
    return {"run_dir": str(folder), "processes": rows}


def _sorted(records: list[ProcessRecord]) -> list[ProcessRecord]:
    """In tree order: by attempt, then rank with its workers below it."""

    def place(record: ProcessRecord) -> tuple[Any, ...]:
        identity = record.identity
        rank = -1 if identity.rank is None else identity.rank
        return identity.attempt, identity.trial, rank, _ORDER[identity.role], identity.worker or 0, record.started

    return sorted(records, key=place)


def _usage(record: ProcessRecord) -> dict[str, float | None]:
    """CPU seconds and resident memory in MB of a living process; None for one that is gone."""
    import psutil

    if not record.key.is_alive():
        return {"cpu_s": None, "memory_mb": None}
    try:
        process = psutil.Process(record.key.pid)
        times = process.cpu_times()
        return {"cpu_s": times.user + times.system, "memory_mb": process.memory_info().rss / 2**20}
    except psutil.Error:
        return {"cpu_s": None, "memory_mb": None}


def _tables(runs: Iterable[Path]) -> list["RenderableType"]:
    tables = [_table(folder) for folder in _folders(runs)]
    return tables or ["no run is alive"]


def _table(folder: Path) -> "RenderableType":
    from rich.table import Table

    table = Table(*_COLUMNS, title=str(folder), title_justify="left", box=None, pad_edge=False)
    for record in _sorted(read_run(folder)):
        table.add_row(*_row(record))
    return table


def _row(record: ProcessRecord) -> tuple[str, ...]:
    now = time.time()
    ended = record.outcome["time"] if record.outcome else None
    usage = _usage(record)
    beat = record.heartbeat
    indent = "  " * (_ORDER[record.identity.role] if record.identity.role != "server" else 1)
    return (
        indent + record.identity.label,
        str(record.key.pid),
        record.state if not record.outcome else f"{record.outcome['status']} ({record.outcome['exit_code']})",
        f"{(ended or now) - record.started:.0f} s",
        "" if usage["cpu_s"] is None else f"{usage['cpu_s']:.1f} s",
        "" if usage["memory_mb"] is None else f"{usage['memory_mb']:.0f} MB",
        "" if beat is None else f"{beat['step']:.0f}",
        "" if beat is None or ended else f"{now - beat['time']:.0f} s ago",
    )


def _print(tables: list["RenderableType"]) -> None:
    from rich.console import Console

    console = Console()
    for table in tables:
        console.print(table)


def _watch(runs: list[Path]) -> int:
    from rich.console import Group
    from rich.live import Live

    try:
        with Live(Group(*_tables(runs)), auto_refresh=False, screen=False) as live:
            while True:
                time.sleep(1.0)
                live.update(Group(*_tables(runs)), refresh=True)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
