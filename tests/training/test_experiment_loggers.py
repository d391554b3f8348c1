"""TensorBoard and MLflow beside each other: every point once, also after a kill; and where they are not installed."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from project.training.experiment_loggers import MLflowLogger, TensorBoardLogger
from tests.helpers.training import Run, compose, tiny_config, train, with_probe

Points = dict[str, list[tuple[int, float]]]
PACKAGES = {"tensorboard": TensorBoardLogger, "mlflow": MLflowLogger}


def killed_and_gone_on(folder: Path, *overrides: str) -> Run:
    """A training that is killed two steps after its last checkpoint, and its second attempt."""
    config = with_probe(tiny_config(folder, "callbacks.checkpoint.every_n_steps=5", *overrides), "batch_end")
    config["user"] = {"password": "a secret of mine"}
    train(config, folder / "run", environ={"PROBE": "step=8,do=kill"})
    return train(config, folder / "run", attempt=2)


def logged(run: Run) -> Points:
    points: Points = {}
    for line in run.history():
        for name in line.keys() - {"step", "epoch"}:
            points.setdefault(name, []).append((line["step"], pytest.approx(line[name], rel=1e-5)))
    return points


def without_clocks(points: Points) -> Points:
    return {name: values for name, values in points.items() if not name.startswith("speed/") and name != "epoch"}


def in_tensorboard(folder: Path) -> tuple[Points, str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    points = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    return without_clocks(points), "".join(str(path.read_bytes()) for path in folder.iterdir())


def in_mlflow(uri: str) -> tuple[Points, Any]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    (experiment,) = client.search_experiments(filter_string="name = 'tiny'") or client.search_experiments()
    (found,) = client.search_runs([experiment.experiment_id])
    points = {
        name: [(value.step, value.value) for value in client.get_metric_history(found.info.run_id, name)]
        for name in found.data.metrics
    }
    return without_clocks(points), found


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("package", PACKAGES)
def test_every_point_is_there_once_after_a_kill(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # of this process, which reads what the run wrote
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    if find_spec(package) is None:
        with pytest.raises(ValueError, match=rf"{package} is not installed; pip install '\.\[{package}\]', or choose"):
            PACKAGES[package]()
        return
    uri = (tmp_path / "mlruns").as_uri()
    places = [f"logger.mlflow.uri={uri}", "logger.mlflow.experiment_name=tiny"] if package == "mlflow" else []

    run = killed_and_gone_on(tmp_path, f"logger=[csv,{package}]", *places)

    expected = logged(run)
    assert {"train/lr", "train/grad_norm", "val/acc", "test/loss"} <= expected.keys()
    if package == "tensorboard":
        points, text = in_tensorboard(run.layout.run_dir / "tensorboard")
        assert "task.optimizer.lr" in text
        assert "a secret" not in text
    else:
        points, found = in_mlflow(uri)
        assert found.info.status == "FINISHED"
        assert found.data.params["task.optimizer.lr"] == "0.003"
        assert "a secret" not in str(found.data.params)
    assert points == expected
    assert (run.layout.run_dir / "metrics.csv").exists()


def test_several_loggers_are_chosen_by_a_list_or_all_by_one_word() -> None:
    assert list(compose("logger=[csv,tensorboard]")["logger"]) == ["csv", "tensorboard"]
    assert list(compose("logger=many")["logger"]) == ["csv", "wandb", "tensorboard", "mlflow"]


def test_a_folder_elsewhere_is_refused() -> None:
    with pytest.raises(ValueError, match=r"folder: '\.\./x' would lie elsewhere; use a plain name"):
        TensorBoardLogger(folder="../x")
