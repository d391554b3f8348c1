"""`make chaos`: every cell under forkserver, a fixed fifth under spawn; prints passed / all and writes the table.

Cells run beside each other, each in a process of its own that adopts what is orphaned, so that none escapes.
"""

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from project.training.report import git_commit, versions
from tests.chaos.cell_run import Result, prepared, run_cell
from tests.chaos.cells import Cell, read_table, subset, under_spawn

RESULTS = Path(__file__).with_name("results.json")


def main() -> None:
    """Exits with 1 when a cell failed."""
    options = _options()
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:  # in the background, or under nohup; runs would inherit it
            signal.signal(number, handler)
    cells, left_out = read_table()
    jobs = _choose(cells, options)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        results = _run(jobs, folder, n_jobs=options.jobs)
    seconds = time.monotonic() - started
    if options.write:
        _write(results, left_out, seconds=seconds, n_jobs=options.jobs)
    print(_summary(results, seconds))
    sys.exit(int(any(result.faults for result in results)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("cells", nargs="*", help="parts of names such as rank0-SIGKILL or -saving; all by default")
    parser.add_argument("--subset", action="store_true", help="the fixed choice of .ci/run")
    parser.add_argument("--start-method", choices=("both", "forkserver", "spawn"), default="both")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="cells beside each other")
    parser.add_argument("--keep", type=Path, help="a folder that keeps what failed")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name} beside this file")
    return parser.parse_args()


def _choose(cells: list[Cell], options: argparse.Namespace) -> list[tuple[Cell, str]]:
    chosen = subset(cells) if options.subset else cells
    spawned = under_spawn(chosen)
    if options.cells:
        chosen = [cell for cell in cells if any(part in cell.name for part in options.cells)]
        spawned = [cell for cell in chosen if options.start_method == "spawn" or cell in under_spawn(cells)]
    jobs = [(cell, "forkserver") for cell in chosen] + [(cell, "spawn") for cell in spawned]
    return [job for job in jobs if options.start_method in ("both", job[1])]


def _run(jobs: list[tuple[Cell, str]], folder: Path, *, n_jobs: int) -> list[Result]:
    results = []
    with prepared(folder) as data, ProcessPoolExecutor(n_jobs) as pool:
        futures = [
            pool.submit(run_cell, cell, method, folder=folder / f"{method}-{cell.name}", data=data)
            for cell, method in jobs
        ]
        try:
            for number, future in enumerate(as_completed(futures), 1):
                results.append(future.result())
                _say(results[-1], f"{number}/{len(jobs)}")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return results


def _say(result: Result, place: str) -> None:
    took = f"{result.seconds:.1f} s" if result.seconds is not None else ""
    how = "not run here" if not result.is_run else "FAILED" if result.faults else "passed"
    print(f"{place:>8} {how:<12} {result.start_method:<10} {result.cell.name:<32} {took}", flush=True)
    for fault in result.faults:
        print("          " + fault.replace("\n", "\n          "), flush=True)


def _summary(results: list[Result], seconds: float) -> str:
    parts = []
    for method in ("forkserver", "spawn"):
        run = [result for result in results if result.start_method == method and result.is_run]
        if run:
            parts.append(f"{method}: {sum(not result.faults for result in run)} / {len(run)} passed")
    skipped = sum(not result.is_run for result in results)
    more = f", {skipped} could not be run here" if skipped else ""
    return f"{'; '.join(parts)}{more} ({seconds:.0f} s)"


def _write(results: list[Result], left_out: dict[str, str], *, seconds: float, n_jobs: int) -> None:
    content = {
        "date": time.strftime("%Y-%m-%d"),
        "summary": _summary(results, seconds),
        "commit": git_commit(),
        "versions": versions(),
        "machine": f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, {n_jobs} cells at a time",
        "left_out": len(left_out),
        "cells": {f"{r.start_method}-{r.cell.name}": _entry(r) for r in sorted(results, key=_order)},
    }
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")


def _order(result: Result) -> tuple[str, str]:
    return result.start_method, result.cell.name


def _entry(result: Result) -> str:
    if not result.is_run:
        return "not run"
    return "passed" if not result.faults else "FAILED: " + "; ".join(fault.splitlines()[0] for fault in result.faults)


if __name__ == "__main__":
    main()
