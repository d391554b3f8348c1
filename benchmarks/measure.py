"""Runs commands in a place of their own and reads what they leave: seconds, process records, memory."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import yaml

from project.common.files.layout import RunLayout
from project.common.process_registry import ProcessRecord, read_run
from project.common.processes.handover import QUIET_WAITING
from project.common.processes.identity import Identity, ProcessKey, Role

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 1800.0
MB = 2**20


class BenchmarkError(Exception):
    """A command failed, or did something else than what was to be measured."""


@dataclass(kw_only=True)
class Place:
    """A folder in which nothing of the user's is read or written.

    Args:
        folder: Where runs, caches and state files go.
        environ: Of every command.
    """

    folder: Path
    environ: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # users have compiled code
        # Our processes let waiting OpenMP threads sleep. That alone would win against the bare script, so it gets the
        # same, and only the process tree is compared.
        folders = {"XDG_STATE_HOME": str(self.folder / "state"), "XDG_CACHE_HOME": str(self.folder / "cache")}
        self.environ = QUIET_WAITING | kept | {"PYTHONPATH": str(ROOT)} | folders

    def python(self, *arguments: str) -> float:
        """Runs Python to its end; returns the seconds of the whole process.

        Raises:
            BenchmarkError: It failed.
        """
        began = time.perf_counter()
        self._run(arguments)
        return time.perf_counter() - began

    def output_of(self, *arguments: str) -> str:
        """What Python prints, which is to be one line of JSON at the end."""
        return self._run(arguments).strip().splitlines()[-1]

    def _run(self, arguments: tuple[str, ...]) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        if done.returncode:
            raise BenchmarkError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def train(self, name: str, *overrides: str, method: str = "forkserver") -> "Run":
        """Runs train.py without W&B, in a new run folder.

        Raises:
            BenchmarkError: It failed, or its processes were started by another method.
        """
        arguments = self.train_arguments(name, *overrides, method=method)
        seconds = self.python(*arguments)
        return self.newest_run(name, method=method, seconds=seconds)

    def train_arguments(self, name: str, *overrides: str, method: str = "forkserver") -> list[str]:
        """The command line of a run."""
        fixed = [f"name={name}", "managers/wandb=disabled", "resume=never", f"processes.start_method={method}"]
        return [str(ROOT / "train.py"), *overrides, *fixed]

    def newest_run(self, name: str, *, method: str, seconds: float = 0.0) -> "Run":
        """The last run of this name, if it was started as wished."""
        run_dir = max((self.folder / "runs" / name).iterdir(), key=lambda path: path.stat().st_mtime_ns)
        run = Run(run_dir=run_dir, seconds=seconds)
        require_method(run.outcome, method)
        return run


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run.

    Args:
        run_dir: Its folder.
        seconds: Of the whole process.
    """

    run_dir: Path
    seconds: float

    @property
    def outcome(self) -> dict[str, Any]:
        """Content of `outcome.json`."""
        found: dict[str, Any] = json.loads((self.run_dir / "outcome.json").read_text())
        return found

    @property
    def config(self) -> dict[str, Any]:
        """Content of `config.yaml`."""
        found: dict[str, Any] = yaml.safe_load((self.run_dir / "config.yaml").read_text())
        return found

    @property
    def to_first_batch_s(self) -> float:
        """Seconds from the start of the trial to the first batch on the slowest rank."""
        return first_batch_s(read_run(self.run_dir))


def require_method(outcome: dict[str, Any], method: str) -> None:
    """Raises `BenchmarkError` if a run's processes were started otherwise than wished: `spawn` is the fallback."""
    if outcome["start_method"] != method or outcome["fallback"] is not None:
        raise BenchmarkError(
            f"processes were started by {outcome['start_method']}, not by {method}: {outcome['fallback']}"
        )


def first_batch_s(records: list[ProcessRecord]) -> float:
    """Seconds from the moment when main starts the trial until every rank has its first batch."""
    (main,) = [record for record in records if record.identity.role is Role.MAIN]
    ranks = [record for record in records if record.identity.role is Role.RANK]
    if not ranks:
        raise BenchmarkError("no rank has left a record")
    return max(_first(record, "training") for record in ranks) - _first(main, "supervising")


def _first(record: ProcessRecord, state: str) -> float:
    for name, when in record.history:
        if name == state:
            return when
    raise BenchmarkError(f"{record.identity.label} was never in the state '{state}': {record.history}")


def memory_of_main(place: Place, name: str, *overrides: str) -> dict[str, float]:
    """Largest `rss` and `uss` in MB of main in the course of a run."""
    command = [sys.executable, *place.train_arguments(name, *overrides)]
    found = {"rss": 0.0, "uss": 0.0}
    with subprocess.Popen(
        command, cwd=place.folder, env=place.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as main:
        for info in sample_memory(main, psutil.Process.memory_full_info):
            found = {key: max(value, getattr(info, key) / MB) for key, value in found.items()}
    if main.returncode:
        raise BenchmarkError(f"{' '.join(command)}: exit code {main.returncode}")
    place.newest_run(name, method="forkserver")
    return found


def sample_memory(main: subprocess.Popen[Any], read: Callable[[psutil.Process], Any]) -> Iterator[Any]:
    """What `read` says of the memory of a process, ten times a second until it ends."""
    while main.poll() is None:
        try:
            yield read(psutil.Process(main.pid))
        except psutil.Error:
            continue  # it has just ended
        time.sleep(0.1)


def medians(samples: list[dict[str, float]]) -> dict[str, float]:
    """The median of each value over equal records."""
    return {key: statistics.median(sample[key] for sample in samples) for key in samples[0]}


def record_processes(run_dir: Path, n_processes: int) -> None:
    """Writes the records of a run of so many workers: every tenth lives, the others are gone."""
    folder = RunLayout(run_dir).processes_dir
    folder.mkdir(parents=True, exist_ok=True)
    own, now = ProcessKey.own(), time.time()
    for number in range(n_processes):
        key = own if number % 10 == 0 else replace(own, pid=own.pid + number, start_time="0")
        record = ProcessRecord(
            key=key,
            identity=Identity(role=Role.WORKER, run_dir=str(run_dir), rank=number // 10, worker=number % 10),
            parent_pid=own.pid,
            started=now,
            history=[("starting", now), ("loading", now)],
            heartbeat={"step": number, "time": now},
        )
        path = RunLayout(run_dir).process_record(record.identity.label, key.pid)
        path.write_text(json.dumps(record.as_dict()))
