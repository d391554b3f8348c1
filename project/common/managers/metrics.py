"""Metrics: computed by row over all ranks, kept in one history that survives a kill, and looked up by name."""

import inspect
import json
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from project.common.errors import ConfigError
from project.common.files.atomic import atomic_file, write_json
from project.common.managers.base import BaseProcessManager
from project.common.processes.identity import Role
from project.common.whitelist import instantiate

if TYPE_CHECKING:
    import torchmetrics

    from project.common.managers.directory import DirectoryManager
    from project.common.row_mean import RowMean

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Best:
    """A metric's best value, and when it was reached."""

    value: float
    step: int
    epoch: int


class MetricsManager(BaseProcessManager):
    """Makes the collections that are updated batch by batch, and owns the run's metric files (rank 0 writes them).

    Args:
        metrics: Name to node of a torchmetrics class; `num_classes` and `num_labels` are passed where it takes them.
        train_metrics: Whether the collection is computed on training batches too; the loss always is.
    """

    name = "metrics"
    roles = frozenset({Role.RANK})

    def __init__(
        self, *, directory: "DirectoryManager", metrics: Mapping[str, Mapping[str, Any]], train_metrics: bool = False
    ) -> None:
        self._directory = directory
        self._metrics = {name: node for name, node in metrics.items() if node is not None}
        self._train_metrics = train_metrics
        self._writes = self.identity.rank in {None, 0}
        self._history: int | None = None
        self._logged: dict[str, list[tuple[float, int, int]]] = {}
        self.final: dict[str, float] = {}
        # The step that this attempt goes on from; -1: from none. None while that is not known.
        self.continues_after: int | None = None

    @property
    def history_path(self) -> Path:
        """One JSON object a line: step, epoch, time, and the values logged there."""
        return self._directory.layout.metrics_history

    def collection(self, split: str, *, n_labels: int | None = None) -> "torchmetrics.MetricCollection":
        """New metrics for a split, named `<split>/<name>`; synchronised over ranks when computed.

        Sums are kept over rows, not means over batches, so short last batches and uneven ranks count right.
        """
        import torchmetrics

        nodes = {} if split == "train" and not self._train_metrics else self._metrics
        sizes = {} if n_labels is None else {"num_classes": n_labels, "num_labels": n_labels}
        metrics = {name: _build(node, sizes) for name, node in nodes.items()}
        # No compute groups: their members share states, which could not be saved and restored one by one.
        return torchmetrics.MetricCollection(metrics, prefix=f"{split}/", compute_groups=False)

    def mean(self) -> "RowMean":
        """A mean weighted by rows: `update(value, weight=n_rows)`. NaN counts, so that a diverged run shows."""
        from project.common.row_mean import RowMean

        return RowMean()

    def log(self, values: Mapping[str, float], *, step: int, epoch: int) -> None:
        """Adds one line to the history; a kill right after loses nothing. Other ranks only remember the values."""
        plain = {key: float(value) for key, value in values.items()}
        for key, value in plain.items():
            self._remember(key, value, step, epoch)
        if self._writes:
            record = {"step": step, "epoch": epoch, "time": round(time.time(), 3)} | _storable(plain)
            os.write(self._open(), (json.dumps(record) + "\n").encode())

    def _remember(self, key: str, value: float, step: int, epoch: int) -> None:
        seen = self._logged.setdefault(key, [])
        if not math.isfinite(value) and all(math.isfinite(old) for old, _, _ in seen):
            log.warning("%s is %s at step %d", key, value, step)
        seen.append((value, step, epoch))

    def _open(self) -> int:
        if self._history is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
            self._history = os.open(self.history_path, flags, 0o644)
        return self._history

    def continue_from(self, step: int) -> None:
        """Forgets what an earlier attempt logged after `step`: it is about to be computed again."""
        self.close()
        self.continues_after = step
        self._logged = {}
        kept = [record for record in read_history(self.history_path) if record["step"] <= step]
        for record in kept:
            for key in record.keys() - {"step", "epoch", "time"}:
                self._logged.setdefault(key, []).append((float(record[key]), record["step"], record["epoch"]))
        if self._writes and self.history_path.exists():
            with atomic_file(self.history_path) as file:
                file.writelines(json.dumps(record) + "\n" for record in kept)

    @property
    def names(self) -> list[str]:
        """Every metric that was logged."""
        return list(self._logged)

    def values_at(self, step: int | None) -> dict[str, float]:
        """Each metric's value at `step`, of those that have one there; None: each metric's last value."""
        if step is None:
            return {name: seen[-1][0] for name, seen in self._logged.items()}
        return {name: entry[0] for name, seen in self._logged.items() for entry in seen if entry[1] == step}

    def last(self, metric: str) -> float:
        """The value logged last. Raises `ConfigError` that lists what there is."""
        return self._values(metric)[-1][0]

    def best(self, metric: str, mode: str) -> Best:
        """Best finite value of a metric.

        Raises:
            ConfigError: Nobody logged it, or it never was a number; lists what there is.
        """
        finite = [entry for entry in self._values(metric) if math.isfinite(entry[0])]
        if not finite:
            raise ConfigError(f"objective.metric: {metric!r} was never a finite number; lower the learning rate")
        choose = min if mode == "min" else max
        value, step, epoch = choose(finite, key=lambda entry: entry[0])
        return Best(value=value, step=step, epoch=epoch)

    def _values(self, metric: str) -> list[tuple[float, int, int]]:
        if metric not in self._logged:
            raise unknown_metric(metric, available=self._logged)
        return self._logged[metric]

    def write_final(self, values: Mapping[str, Any]) -> None:
        """Writes `metrics.json`."""
        self.final = dict(values)
        if self._writes:
            write_json(self._directory.layout.metrics, _storable(values))

    def close(self) -> None:
        """Closes the history; a later `log` opens it again."""
        if self._history is not None:
            os.close(self._history)
            self._history = None


def unknown_metric(metric: str, *, available: Any, key: str = "objective.metric") -> ConfigError:
    """The error for a metric that nobody logs, named by `key`."""
    return ConfigError(f"{key}: {metric!r} is not logged; use one of {', '.join(sorted(available)) or '(none)'}")


def read_history(path: Path) -> list[dict[str, Any]]:
    """Lines of a history; one that was cut off is left out. NaN and infinity are strings that `float()` reads."""
    return list(_lines(path)) if path.exists() else []


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "step" in record:
            yield record


def _build(node: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    make = instantiate(node, _partial_=True)
    target = getattr(make, "func", make)
    # torchmetrics.Accuracy and its like decide in __new__ what they are.
    parameters = inspect.signature(target.__init__).parameters | inspect.signature(target.__new__).parameters
    given = getattr(make, "keywords", {})
    return make(**{key: size for key, size in sizes.items() if key in parameters and key not in given})


def _storable(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: `float()` reads these strings back."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }
