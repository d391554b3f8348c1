"""Loggers: the run's own history always, and what the `logger` group adds. All write in rank 0 only."""

import csv
from argparse import Namespace
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from project.common.files.atomic import atomic_file
from project.common.managers import get_directory_manager, get_metrics_manager, get_wandb_manager
from project.common.managers.metrics import read_history


class ManagedLogger(Logger):
    """What the loggers here share: managers know where things go, so there is nothing to name."""

    @property
    def name(self) -> str:
        return get_directory_manager().run_dir.parent.name

    @property
    def version(self) -> str:
        return get_directory_manager().run_dir.name

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Nothing: the configuration is in the run's folder."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Nothing: for those that read the history in the end."""


class HistoryLogger(ManagedLogger):
    """Adds a line to `metrics.jsonl`; every run has it."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        epoch = int(metrics.get("epoch", 0))
        values = {key: value for key, value in metrics.items() if key != "epoch"}
        get_metrics_manager().log(values, step=step or 0, epoch=epoch)


class WandbLogger(ManagedLogger):
    """Passes values to the W&B manager, which opens its run in rank 0 at the first one."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        get_wandb_manager().log(metrics, step=step or 0)

    @property
    def experiment(self) -> Any:
        """W&B's run; a stand-in that takes every call in other ranks."""
        return get_wandb_manager().run


class CsvLogger(ManagedLogger):
    """Writes the history as `metrics.csv` when training ends, also by an error: one row a step, a column a metric.

    Args:
        file_name: In the run's folder.
    """

    def __init__(self, *, file_name: str = "metrics.csv") -> None:
        super().__init__()
        if Path(file_name).name != file_name or not file_name.endswith(".csv"):
            raise ValueError(f"file_name: '{file_name}' would lie elsewhere, or on another file; use a name in .csv")
        self._file_name = file_name

    @rank_zero_only
    def finalize(self, status: str) -> None:
        write_csv(get_metrics_manager().history_path, get_directory_manager().run_dir / self._file_name)


def write_csv(history: Path, path: Path) -> None:
    """Writes a history as CSV; values of one step share a row."""
    rows: dict[int, dict[str, Any]] = {}
    for record in read_history(history):
        rows.setdefault(record["step"], {}).update(record)
    columns = dict.fromkeys(("step", "epoch", "time"))
    for row in rows.values():
        columns |= dict.fromkeys(row)
    with atomic_file(path, durable=False) as file:
        writer = csv.DictWriter(file, fieldnames=list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[step] for step in sorted(rows))
