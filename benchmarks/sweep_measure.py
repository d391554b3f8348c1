"""What a sweep leaves, as numbers: when its trials ended, how long each took, what main held meanwhile."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from project.common.process_registry import ProcessRecord
from project.common.processes.identity import Role
from benchmarks.measure import LIMIT_S, MB, BenchmarkError, Place, sample_memory

HUNDRED = 100


def outcomes(folder: Path, n_trials: int) -> list[dict[str, Any]]:
    """How each trial below a folder ended, with the moment of it as `at`, in that order.

    Raises:
        BenchmarkError: They are not as many as were asked for, or one did not complete.
    """
    paths = sorted(folder.rglob("outcome.json"), key=lambda path: path.stat().st_mtime_ns)
    found = [json.loads(path.read_text()) | {"at": path.stat().st_mtime} for path in paths]
    completed = [outcome for outcome in found if outcome["status"] == "completed"]
    if not len(found) == len(completed) == n_trials:
        raise BenchmarkError(f"{folder.name}: {len(completed)} of {len(found)} trials completed, {n_trials} expected")
    return found


def require_equal_steps(runs: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Raises `BenchmarkError` unless all trials made equally many steps: only then their times compare."""
    steps = {outcome["result"]["step"] for run in runs for outcome in run}
    if len(steps) != 1:
        raise BenchmarkError(f"the trials made {sorted(steps)} steps")


def gaps_s(found: Sequence[dict[str, Any]]) -> list[float]:
    """Seconds from each trial's end to the next one's."""
    ends = [outcome["at"] for outcome in found]
    return [later - sooner for sooner, later in pairwise(ends)]


def growth(gaps: Sequence[float]) -> tuple[float, float]:
    """The median of the first hundred and of the last; of tenths where there are fewer."""
    n = min(HUNDRED, max(1, len(gaps) // 10))
    return statistics.median(gaps[:n]), statistics.median(gaps[-n:])


def memory_growth(samples: Sequence[tuple[float, float]], found: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Main's memory in MB while the first hundred trials ended, and the last: the median of each.

    Args:
        samples: (seconds since the epoch, bytes).
    """
    ends = [outcome["at"] for outcome in found]
    n = min(HUNDRED, max(1, len(ends) // 10))
    first = [size for at, size in samples if ends[0] <= at <= ends[n]]
    last = [size for at, size in samples if ends[-n - 1] <= at <= ends[-1]]
    if not first or not last:
        raise BenchmarkError("main's memory was not seen both early and late; take more trials")
    return statistics.median(first) / MB, statistics.median(last) / MB


def run_watched(place: Place, name: str, *arguments: str) -> list[tuple[float, float]]:
    """Runs Python to its end; returns (seconds since the epoch, resident bytes) of it, again and again.

    Raises:
        BenchmarkError: It failed, or took too long.
    """
    output = place.folder / f"{name}.log"
    command = [sys.executable, *arguments]
    samples: list[tuple[float, float]] = []
    with (
        output.open("w") as file,
        subprocess.Popen(command, cwd=place.folder, env=place.environ, stdout=file, stderr=file) as main,
    ):
        until = time.monotonic() + LIMIT_S
        for memory in sample_memory(main, psutil.Process.memory_info):  # the full one would slow main down
            samples.append((time.time(), memory.rss))
            if time.monotonic() > until:
                main.terminate()
                main.wait()
    if main.returncode:
        raise BenchmarkError(f"{' '.join(command)}: exit code {main.returncode}\n{output.read_text()[-3000:]}")
    return samples


def start_up_s(records: list[ProcessRecord]) -> float:
    """Seconds from the beginning of a trial's process until every rank has its first batch."""
    (trial,) = [record for record in records if record.identity.role is Role.TRIAL]
    firsts = [
        next((when for state, when in record.history if state == "training"), None)
        for record in records
        if record.identity.role is Role.RANK
    ]
    if not firsts or None in firsts:
        raise BenchmarkError("not every rank of the trial has had a batch")
    return max(when for when in firsts if when is not None) - trial.started
