"""The metrics manager: exact values, a history that survives, and names that are looked up."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from project.common.errors import ConfigError
from project.common.managers.directory import DirectoryManager
from project.common.managers.metrics import Best, MetricsManager, read_history
from project.common.processes.identity import Identity, Role, set_identity
from tests.helpers.metrics import ACCURACY, averages, log_and_die, run_children

NAN, INF = float("nan"), float("inf")


def manager(folder: Path, **options: Any) -> MetricsManager:
    directory = DirectoryManager(
        runs_dir=str(folder / "runs"), name="x", cache_dir=str(folder / "cache"), min_free_mb=0
    )
    return MetricsManager(directory=directory, metrics={"acc": ACCURACY}, **options)


@pytest.fixture
def metrics(tmp_path: Path) -> Any:
    made = manager(tmp_path)
    yield made
    made.close()


def test_a_mean_counts_rows_not_batches(metrics: MetricsManager) -> None:
    """Ten rows of value 0 to 9 in batches of 4, 4 and 2."""
    mean = metrics.mean()
    for batch in torch.arange(10.0).split(4):
        mean.update(batch.mean(), weight=len(batch))

    assert mean.compute().item() == 4.5


def test_a_mean_over_ranks_counts_rows(tmp_path: Path) -> None:
    """One rank has 7 of the rows, the other 3: the mean of all ten is 4.5, the mean of means is not."""
    assert run_children(averages, tmp_path, n=2) == [(4.5, 0.7), (4.5, 0.7)]


def test_nan_is_not_hidden(metrics: MetricsManager) -> None:
    mean = metrics.mean()
    mean.update(torch.tensor(1.0), weight=2)
    mean.update(torch.tensor(NAN), weight=2)

    assert mean.compute().isnan()


def test_a_collection_gets_the_number_of_classes(metrics: MetricsManager) -> None:
    collection = metrics.collection("val", n_labels=3)
    collection.update(torch.eye(3), torch.tensor([0, 1, 1]))

    assert collection.compute() == {"val/acc": torch.tensor(2 / 3)}


def test_training_batches_are_scored_on_wish_only(tmp_path: Path) -> None:
    assert len(manager(tmp_path).collection("train", n_labels=3)) == 0
    assert len(manager(tmp_path, train_metrics=True).collection("train", n_labels=3)) == 1


def test_the_history_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    [code] = run_children(log_and_die, tmp_path, n=1)

    assert code == -signal.SIGKILL
    assert [(line["step"], line["val/acc"]) for line in read_history(path)] == [(1, 0.1), (2, 0.2)]


def test_going_on_cuts_the_history_back(metrics: MetricsManager) -> None:
    for step in range(1, 6):
        metrics.log({"val/acc": step / 10}, step=step, epoch=0)

    metrics.continue_from(3)
    metrics.log({"val/acc": 0.9}, step=4, epoch=0)

    assert [line["step"] for line in read_history(metrics.history_path)] == [1, 2, 3, 4]
    assert metrics.best("val/acc", "max") == Best(value=0.9, step=4, epoch=0)


def test_a_torn_last_line_is_left_out(metrics: MetricsManager) -> None:
    metrics.log({"val/acc": 0.5}, step=1, epoch=0)
    with metrics.history_path.open("a") as file:
        file.write('{"step": 2, "val/a')

    metrics.continue_from(5)
    metrics.log({"val/acc": 0.6}, step=2, epoch=0)

    assert [json.loads(line)["step"] for line in metrics.history_path.read_text().splitlines()] == [1, 2]


def test_the_best_value_is_the_first_best_finite_one(metrics: MetricsManager) -> None:
    for step, value in enumerate([NAN, 0.4, 0.2, INF, 0.2], start=1):
        metrics.log({"val/loss": value}, step=step, epoch=step // 2)

    assert metrics.best("val/loss", "min") == Best(value=0.2, step=3, epoch=1)
    assert metrics.best("val/loss", "max").value == 0.4


def test_an_unknown_metric_names_those_that_there_are(metrics: MetricsManager) -> None:
    metrics.log({"val/loss": 1.0, "val/acc": 0.5}, step=1, epoch=0)

    with pytest.raises(ConfigError, match=r"objective\.metric: 'val/typo' is not logged; use one of val/acc, val/loss"):
        metrics.best("val/typo", "max")


def test_a_metric_that_was_never_a_number_says_so(metrics: MetricsManager) -> None:
    metrics.log({"val/loss": NAN}, step=1, epoch=0)

    with pytest.raises(ConfigError, match="was never a finite number"):
        metrics.best("val/loss", "min")


def test_nan_is_written_as_json_that_others_can_read(metrics: MetricsManager) -> None:
    metrics.log({"val/loss": NAN, "val/acc": -INF}, step=1, epoch=0)
    metrics.write_final({"val/loss": NAN, "test/acc": 0.5})

    [line] = read_history(metrics.history_path)
    assert (line["val/loss"], float(line["val/acc"])) == ("nan", -INF)
    assert json.loads(metrics._directory.layout.metrics.read_text()) == {"val/loss": "nan", "test/acc": 0.5}


def test_the_first_value_that_is_no_number_is_said_once(
    metrics: MetricsManager, caplog: pytest.LogCaptureFixture
) -> None:
    for step in range(3):
        metrics.log({"val/loss": NAN}, step=step, epoch=0)

    assert caplog.text.count("val/loss is nan at step 0") == 1


def test_other_ranks_write_nothing(tmp_path: Path) -> None:
    set_identity(Identity(role=Role.RANK, rank=1, world_size=2, run_dir=str(tmp_path / "run")))
    try:
        other = manager(tmp_path)
        other.log({"val/acc": 0.5}, step=1, epoch=0)
        other.write_final({"val/acc": 0.5})
    finally:
        set_identity(None)

    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    assert not (tmp_path / "run" / "metrics.json").exists()
    assert other.best("val/acc", "max").value == 0.5


def test_closing_twice_is_fine_and_logging_opens_again(metrics: MetricsManager) -> None:
    metrics.log({"a": 1.0}, step=1, epoch=0)
    before = len(os.listdir("/proc/self/fd"))
    metrics.close()
    metrics.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1

    metrics.log({"a": 2.0}, step=2, epoch=0)

    assert len(read_history(metrics.history_path)) == 2
