"""A rank that logs to W&B and ends in some way, and a reader of what W&B stored."""

import json
import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from project.common.managers.directory import DirectoryManager
from project.common.managers.metrics import MetricsManager
from project.common.managers.wandb import WandbManager
from project.common.processes.identity import Identity, Role, set_identity


def manager(run_dir: Path, **options: Any) -> WandbManager:
    """A W&B manager that writes below `run_dir`."""
    folder = str(run_dir.parent)
    directory = DirectoryManager(runs_dir=folder, name="x", cache_dir=folder, min_free_mb=0)
    metrics = MetricsManager(directory=directory, metrics={})
    return WandbManager(directory=directory, metrics=metrics, **{"project": "tests", "mode": "offline"} | options)


def in_rank(child: Callable[[WandbManager], None], run_dir: Path, *, rank: int = 0, **options: Any) -> int | None:
    """Runs `child` in a process of its own; returns its exit code."""
    process = multiprocessing.get_context("fork").Process(target=_enter, args=(child, run_dir, rank, options))
    process.start()
    process.join(60)
    return process.exitcode


def _enter(child: Callable[[WandbManager], None], run_dir: Path, rank: int, options: dict[str, Any]) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "wandb"]:
        del sys.modules[name]  # as in a new process: reading records has imported it in the test's
    set_identity(Identity(role=Role.RANK, rank=rank, world_size=2, run_dir=str(run_dir)))
    child(manager(run_dir, **options))


def exit_codes(run_dir: Path) -> list[int | None]:
    """The exit code in each offline run below `run_dir`, None for one that was not closed."""
    return [_last(records, "exit") for records in stored(run_dir)]


def stored(run_dir: Path) -> list[list[Any]]:
    """The records of each offline run, oldest first."""
    return [list(_records(path)) for path in sorted(run_dir.glob("wandb/offline-run-*/run-*.wandb"))]


def _last(records: list[Any], kind: str) -> int | None:
    found = [record for record in records if record.WhichOneof("record_type") == kind]
    return found[-1].exit.exit_code if found else None


def _records(path: Path) -> Any:
    """W&B's own format: LevelDB's log, 32 kB blocks of records with a header of checksum, length and type."""
    from wandb.proto import wandb_internal_pb2

    data, offset, whole = path.read_bytes(), 7, b""
    while offset + 7 <= len(data):
        in_block = 32768 - offset % 32768
        if in_block < 7:
            offset += in_block
            continue
        length, kind = int.from_bytes(data[offset + 4 : offset + 6], "little"), data[offset + 6]
        if kind == 0:
            break
        whole += data[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if kind in {1, 4}:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def summary(run_dir: Path) -> dict[str, Any]:
    """What the last offline run below `run_dir` ended with."""
    found: dict[str, Any] = {}
    for record in stored(run_dir)[-1]:
        if record.WhichOneof("record_type") == "summary":
            found |= {item.key: json.loads(item.value_json) for item in record.summary.update}
    return found
