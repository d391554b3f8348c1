"""Shows the processes of this user's runs: python -m project.ps [RUN …] [--json] [--watch] [--reap] [--timeline]."""

import argparse
import json
import sys
import time
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from project.common.devices.inventory import memory_by_process
from project.common.live_runs import LiveRun, pointed_runs, with_jobs
from project.common.process_registry import ProcessRecord, kill_remaining, read_run
from project.common.processes.outlived_streams import outlive_readers
from project.common.tree_order import in_tree_order, indentation

if TYPE_CHECKING:
    from rich.text import Text

_COLUMNS = ("process", "pid", "state", "age", "cpu", "memory", "gpu memory", "step", "heartbeat")
_TO_THE_RIGHT = frozenset(_COLUMNS[1:]) - {"state"}
_STYLES = {"killed": "red", "crashed": "red", "refused": "red", "interrupted": "yellow"}


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit code."""
    options = _parser().parse_args(arguments)
    if options.reap:
        return _reap()
    if options.timeline:
        return _draw(options.runs)
    if options.json:
        devices = memory_by_process()
        print(json.dumps([_as_json(folder, devices) for folder in _folders(options.runs)], indent=1))
        return 0
    if options.watch:
        return _watch(options.runs)
    from rich.console import Console

    console = Console()
    console.print(_tables(options.runs), no_wrap=True, overflow="ignore", crop=console.is_terminal)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m project.ps", description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="run folders; none: every run that is alive")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--json", action="store_true", help="plain data instead of tables")
    way.add_argument("--watch", action="store_true", help="show again every second, in place, until Ctrl-C")
    way.add_argument("--reap", action="store_true", help="end what runs left whose main process is gone")
    way.add_argument("--timeline", action="store_true", help="write who did what when: a picture, and for Perfetto")
    return parser


def _folders(runs: Iterable[Path]) -> list[Path]:
    named = list(runs)
    for folder in named:
        if not folder.is_dir():
            sys.exit(f"{folder}: no such run folder")
    found = named or [run.run_dir for run in pointed_runs() if run.main.is_alive() or _is_left(run)]
    return [folder for run_dir in found for folder in with_jobs(run_dir)]


def _is_left(run: LiveRun) -> bool:
    return any(record.key.is_alive() for folder in with_jobs(run.run_dir) for record in read_run(folder))


def _reap() -> int:
    """Ends what is left of runs whose main is gone; what belongs to a living main is never touched."""
    for run in pointed_runs():
        if not run.main.is_local() or run.main.is_alive():
            continue
        for folder in with_jobs(run.run_dir):
            for record in kill_remaining(folder):
                print(f"ended {record.identity.label} (pid {record.key.pid}) of {folder}")
        run.pointer.unlink(missing_ok=True)
    return 0


def _draw(runs: Iterable[Path]) -> int:
    """Writes both forms of each run's timeline into its folder and prints their paths."""
    from project.common.processes.timeline import write_timeline

    for folder in _folders(runs):
        if not read_run(folder):
            sys.exit(f"{folder}: no process of a run is recorded there")
        for path in write_timeline(folder):
            print(path)
    return 0


def _as_json(folder: Path, devices: Mapping[int, float]) -> dict[str, Any]:
    rows = [
        record.as_dict() | {"state": record.state} | _usage(record, devices)
        for record in in_tree_order(read_run(folder))
    ]
    return {"run_dir": str(folder), "processes": rows}


def _usage(record: ProcessRecord, devices: Mapping[int, float]) -> dict[str, float | None]:
    """CPU seconds, resident memory and device memory (both in MB) of a living process; None for one that is gone."""
    import psutil

    nothing: dict[str, float | None] = {"cpu_s": None, "memory_mb": None, "gpu_memory_mb": None}
    if not record.key.is_alive():
        return nothing
    try:
        process = psutil.Process(record.key.pid)
        times, memory = process.cpu_times(), process.memory_info()
    except psutil.Error:
        return nothing
    return {
        "cpu_s": times.user + times.system,
        "memory_mb": memory.rss / 2**20,
        "gpu_memory_mb": devices.get(record.key.pid),
    }


def _tables(runs: Iterable[Path]) -> "Text":
    from rich.text import Text

    devices = memory_by_process()
    tables = [_table(folder, devices) for folder in _folders(runs)]
    return Text("\n").join(tables) if tables else Text("no run is alive")


def _table(folder: Path, devices: Mapping[int, float]) -> "Text":
    """A line per process. Padded here: rich's table takes a second for a thousand rows."""
    from rich.text import Text

    records = in_tree_order(read_run(folder))
    with_trial = {(record.identity.attempt, record.identity.trial) for record in records if _is(record, "trial")}
    rows = [_row(record, devices, with_trial=with_trial) for record in records]
    shown = [i for i, name in enumerate(_COLUMNS) if name != "gpu memory" or any(row[i] for row in rows)]
    widths = [max(len(row[i]) for row in (_COLUMNS, *rows)) for i in shown]
    text = Text.assemble((f"{folder}\n", "italic"), (_line(_COLUMNS, shown, widths), "bold"))
    for record, row in zip(records, rows, strict=True):
        status = record.outcome["status"] if record.outcome else record.state
        text.append("\n" + _line(row, shown, widths), style=_STYLES.get(status, ""))
    return text


def _line(cells: tuple[str, ...], shown: list[int], widths: list[int]) -> str:
    padded = (
        cells[i].rjust(width) if _COLUMNS[i] in _TO_THE_RIGHT else cells[i].ljust(width)
        for i, width in zip(shown, widths, strict=True)
    )
    return "  ".join(padded).rstrip()


def _is(record: ProcessRecord, role: str) -> bool:
    return record.identity.role == role


def _place(record: ProcessRecord, with_trial: Container[tuple[int, int]]) -> str:
    """The label below its parent's. With one device the trial is rank 0 itself, and one row shows both."""
    identity = record.identity
    is_alone = _is(record, "rank") and identity.world_size == 1
    if is_alone and (identity.attempt, identity.trial) not in with_trial:
        return f"  trial/{identity.label}"
    return "  " * indentation(record) + identity.label


def _row(
    record: ProcessRecord, devices: Mapping[int, float], *, with_trial: Container[tuple[int, int]]
) -> tuple[str, ...]:
    now = time.time()
    ended = record.outcome["time"] if record.outcome else record.last_sign if record.state == "killed" else None
    usage = _usage(record, devices)
    beat = record.heartbeat
    return (
        _place(record, with_trial),
        str(record.key.pid),
        record.state if not record.outcome else f"{record.outcome['status']} ({record.outcome['exit_code']})",
        f"{(ended or now) - record.started:.0f} s",
        _number(usage["cpu_s"], "{:.1f} s"),
        _number(usage["memory_mb"], "{:.0f} MB"),
        _number(usage["gpu_memory_mb"], "{:.0f} MB"),
        "" if beat is None else f"{beat['step']:.0f}",
        "" if beat is None or ended else f"{now - beat['time']:.0f} s ago",
    )


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _watch(runs: list[Path]) -> int:
    from rich.live import Live

    try:
        with Live(_tables(runs), auto_refresh=False) as live:
            while True:
                time.sleep(1.0)
                live.update(_tables(runs), refresh=True)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    outlive_readers()
    sys.exit(main())
