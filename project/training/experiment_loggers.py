"""TensorBoard and MLflow: optional packages, imported when the first value comes, in rank 0 only."""

import os
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_only

from project.common.files.secrets import mask_config
from project.common.managers import get_directory_manager, get_metrics_manager
from project.common.processes.handover import handed_config
from project.training.loggers import ManagedLogger

_MOST_PARAMS = 100  # that MLflow takes at once
_LONGEST_PARAM = 6000


def _require(package: str, *, extra: str) -> None:
    if find_spec(package) is None:
        raise ValueError(f"{package} is not installed; pip install '.[{extra}]', or choose logger=csv")


def _hyperparameters() -> dict[str, Any]:
    """The configuration in one level, secrets masked."""
    return dict(_flat(mask_config(handed_config() or {}), ""))


def _flat(value: Any, key: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        return [item for name, child in value.items() for item in _flat(child, f"{key}.{name}".lstrip("."))]
    is_plain = isinstance(value, (bool, int, float, str))
    return [(key, value if is_plain else str(value))]


class TensorBoardLogger(ManagedLogger):
    """Writes event files: `tensorboard --logdir runs` shows them. What an attempt repeats takes the place of the old.

    Args:
        folder: In the run's folder.
    """

    def __init__(self, *, folder: str = "tensorboard") -> None:
        super().__init__()
        if Path(folder).name != folder:
            raise ValueError(f"folder: '{folder}' would lie elsewhere; use a plain name")
        _require("tensorboard", extra="tensorboard")
        self._folder = folder
        self._writer: Any = None
        self._is_new = True

    @property
    @rank_zero_only
    def experiment(self) -> Any:
        """The writer, opened now if it is not; None in other ranks, and before it is known where training goes on."""
        return self._opened() if get_metrics_manager().continues_after is not None else None

    def _opened(self) -> Any:
        if self._writer is None:
            self._writer = self._open()
        return self._writer

    def _open(self) -> Any:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        step = get_metrics_manager().continues_after
        step = -1 if step is None else step
        # Later steps of an attempt that was killed are about to come again.
        purge = {"purge_step": step + 1} if self._is_new and step >= 0 else {}
        writer = SummaryWriter(str(get_directory_manager().place(self._folder)), **purge)
        if self._is_new and step < 0:
            for summary in hparams(_hyperparameters(), {}):
                writer._get_file_writer().add_summary(summary)
        self._is_new = False
        return writer

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        for name, value in metrics.items():
            self._opened().add_scalar(name, value, global_step=step or 0)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Closes the files; testing after training opens another one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class MLflowLogger(ManagedLogger):
    """Logs to an MLflow store, by default a local folder. Every attempt goes on with the run of the first one.

    Args:
        uri: A folder, relative to where the command was typed, or an address that MLflow understands.
        experiment_name: None takes the run's name.
    """

    def __init__(self, *, uri: str = "mlruns", experiment_name: str | None = None) -> None:
        super().__init__()
        _require("mlflow", extra="mlflow")
        self._uri = uri if "://" in uri else Path(uri).absolute().as_uri()
        self._experiment_name = experiment_name
        self._client: Any = None
        self._run_id = ""
        self._last_steps: dict[str, int] = {}

    @property
    @rank_zero_only
    def experiment(self) -> Any:
        """MLflow's client, opened now if it is not; None in other ranks."""
        if self._client is None:
            self._client = self._open()
        return self._client

    def _open(self) -> Any:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        # A folder is what it keeps runs in without a database.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=self._uri)
        file = get_directory_manager().place("mlflow-run-id")
        if file.exists():
            self._run_id = file.read_text()
            self._last_steps = {
                name: max(value.step for value in client.get_metric_history(self._run_id, name))
                for name in client.get_run(self._run_id).data.metrics
            }
            client.update_run(self._run_id, status="RUNNING")
            return client
        name = self._experiment_name or self.name
        found = client.get_experiment_by_name(name)
        experiment_id = found.experiment_id if found is not None else client.create_experiment(name)
        self._run_id = client.create_run(experiment_id, run_name=self.version).info.run_id
        file.write_text(self._run_id)
        params = [Param(key, str(value)[:_LONGEST_PARAM]) for key, value in _hyperparameters().items()]
        for start in range(0, len(params), _MOST_PARAMS):
            client.log_batch(self._run_id, params=params[start : start + _MOST_PARAMS])
        return client

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Passes values on; those of steps that an earlier attempt had logged are there already."""
        client = self.experiment  # which finds out what is there
        from mlflow.entities import Metric

        now_ms, step = int(time.time() * 1000), step or 0
        new = [Metric(name, value, now_ms, step) for name, value in metrics.items() if step > self._last(name)]
        if new:
            client.log_batch(self._run_id, metrics=new)

    def _last(self, name: str) -> int:
        return self._last_steps.get(name, -1)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Says how the run ended; testing after training opens it again."""
        if self._client is not None:
            self._client.set_terminated(self._run_id, status="FINISHED" if status == "success" else "FAILED")
