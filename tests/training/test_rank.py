"""Whole trainings of a rank: what it returns and leaves, on one device and on two."""

import json
import os
from pathlib import Path

import pytest

from tests.helpers.training import compose, tiny_config, train, with_probe

pytestmark = pytest.mark.usefixtures("served")


def test_a_training_returns_a_record_and_leaves_its_files(tmp_path: Path) -> None:
    run = train(tiny_config(tmp_path, "logger=csv"), tmp_path / "run")

    record = run.record
    assert set(record["metrics"]) == {"train/loss", "val/loss", "val/acc", "test/loss", "test/acc"}
    assert (record["epoch"], record["step"], record["stop_reason"]) == (3, 27, "trainer.max_epochs reached")
    assert [row["model"] for row in record["rows"]] == ["ModernBertForSequenceClassification"]
    assert {"val/acc", "test/acc", "test/loss"} <= record["rows"][0].keys()
    assert Path(record["best_checkpoint"]).is_file()
    assert Path(record["last_checkpoint"]).is_file()
    assert json.loads(run.layout.metrics.read_text()) == record["metrics"]
    assert (tmp_path / "run" / "metrics.csv").read_text().startswith("step,epoch,time,")


def test_the_value_is_that_of_the_best_checkpoint(tmp_path: Path) -> None:
    run = train(tiny_config(tmp_path, "objective.metric=val/loss", "objective.mode=min"), tmp_path / "run")

    values = [line["val/loss"] for line in run.history() if "val/loss" in line]
    assert run.record["metrics"]["val/loss"] == min(values)
    assert run.checkpoint("best")["callbacks"]["Checkpoints"]["best_value"] == min(values)


@pytest.mark.case("14")
def test_two_ranks_evaluate_every_row_once(tmp_path: Path) -> None:
    """Trained for no step, so both have the same weights: 11 and 7 rows in batches of 4 on 1 and 2 ranks."""
    config = tiny_config(tmp_path, "task.optimizer.lr=0", "trainer.max_epochs=1", "task.optimizer.weight_decay=0")
    alone = train(config, tmp_path / "one").record["metrics"]

    shared = train(config | {"trainer": config["trainer"] | {"devices": 2}}, tmp_path / "two", world_size=2)

    for name in ("val/loss", "val/acc", "test/loss", "test/acc"):
        assert shared.record["metrics"][name] == pytest.approx(alone[name], rel=1e-5), name
    assert shared.records[1] is not None
    assert shared.records[1]["metrics"] == shared.record["metrics"]
    assert not list((tmp_path / "two" / "processes").glob("rendezvous*"))
    counted = json.loads(shared.layout.confusion.read_text())
    assert (counted["split"], counted["labels"]) == ("test", ["aa", "bb", "cc"])
    assert sum(map(sum, counted["counts"])) == 7
    right = sum(row[i] for i, row in enumerate(counted["counts"]))
    assert right / 7 == pytest.approx(shared.record["metrics"]["test/acc"])


def test_workers_change_nothing(tmp_path: Path) -> None:
    without = train(tiny_config(tmp_path), tmp_path / "0")

    with_two = train(tiny_config(tmp_path, "loader.num_workers=2", "loader.num_workers_eval=1"), tmp_path / "2")

    assert with_two.record["metrics"] == without.record["metrics"]


def test_a_misspelt_objective_names_the_metrics_that_there_are(tmp_path: Path) -> None:
    run = train(tiny_config(tmp_path, "objective.metric=val/typo", "trainer.max_epochs=1"), tmp_path / "run")

    assert run.exit_codes == [2]
    assert "'val/typo' is not logged; use one of" in run.causes[0]
    assert "val/acc, val/loss" in run.causes[0]


def test_a_training_shorter_than_an_epoch_is_validated(tmp_path: Path) -> None:
    run = train(tiny_config(tmp_path, "trainer.max_steps=2"), tmp_path / "run")

    assert run.record["stop_reason"] == "trainer.max_steps reached"
    assert "val/acc" in run.record["metrics"]


def test_a_dry_run_of_one_batch_saves_nothing(tmp_path: Path) -> None:
    run = train(tiny_config(tmp_path, "debug=fdr"), tmp_path / "run")

    assert set(run.record["metrics"]) == {"test/loss", "test/acc"}
    assert not list((tmp_path / "run" / "checkpoints").iterdir())


@pytest.mark.case("88")
def test_weights_that_are_not_finite_do_not_replace_the_last_checkpoint(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, "task.optimizer.lr=1e30", "trainer.gradient_clip_val=null", "task.scheduler=null")

    run = train(config | {"task": config["task"] | {"warmup_fraction": None}}, tmp_path / "run")

    assert run.exit_codes == [1]
    assert "the training diverged, its weights are not finite" in run.causes[0]
    assert os.listdir(tmp_path / "run" / "checkpoints") == ["diverged.ckpt"]


@pytest.mark.parametrize("saving", ["callbacks.checkpoint.every_n_steps=null", "~callbacks.checkpoint"])
def test_a_learning_rate_that_is_too_large_is_told_with_the_step(tmp_path: Path, saving: str) -> None:
    """Its accuracy is a number all the same, so there was a best step without a best checkpoint."""
    run = train(tiny_config(tmp_path, "task.optimizer.lr=inf", saving, "trainer.log_every_n_steps=999"), tmp_path / "r")

    assert run.exit_codes == [1]
    assert "step 9: the training diverged" in run.causes[0]
    assert "lower task.optimizer.lr" in run.causes[0]


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_a_loss_that_is_no_number_ends_every_rank_where_it_is_logged(tmp_path: Path, n_ranks: int) -> None:
    config = tiny_config(tmp_path, "task.optimizer.lr=inf", "trainer.log_every_n_steps=1", f"trainer.devices={n_ranks}")

    run = train(config, tmp_path / "run", world_size=n_ranks)

    assert run.exit_codes == [1] * n_ranks
    assert all("step 2: the training diverged" in cause for cause in run.causes), run.causes


def test_a_metric_that_is_no_number_is_never_best(tmp_path: Path) -> None:
    metric = "+task.metrics.nan._target_=tests.helpers.metrics.NotANumber"

    run = train(tiny_config(tmp_path, metric, "objective.metric=val/nan"), tmp_path / "run")

    assert run.exit_codes == [0]
    assert run.record["best_checkpoint"] is None
    assert Path(run.record["last_checkpoint"]).is_file()
    assert "test/acc" in run.record["metrics"]


def test_a_new_run_may_start_from_another_ones_file(tmp_path: Path) -> None:
    first = train(tiny_config(tmp_path, "trainer.max_epochs=1"), tmp_path / "first")
    start = first.layout.checkpoint("last")

    second = train(tiny_config(tmp_path, f"ckpt_path={start}", "trainer.max_epochs=2"), tmp_path / "second")

    assert second.record["step"] == 18
    assert second.history()[0]["step"] > 9
    assert Path(second.record["best_checkpoint"]).parent == tmp_path / "second" / "checkpoints"


@pytest.mark.slow
def test_another_number_of_ranks_may_go_on_from_an_epochs_end_only(tmp_path: Path) -> None:
    two = ("trainer.devices=2", "trainer.max_epochs=1")
    whole = train(tiny_config(tmp_path, *two), tmp_path / "whole", world_size=2)
    within = train(
        with_probe(tiny_config(tmp_path, *two), "batch_end"),
        tmp_path / "within",
        world_size=2,
        environ={"PROBE": "step=2,do=stop"},
    )

    starts = [run.layout.checkpoint("last") for run in (whole, within)]
    goes_on, refused = (
        train(tiny_config(tmp_path, f"ckpt_path={start}", "trainer.max_epochs=2"), tmp_path / f"alone{n}")
        for n, start in enumerate(starts)
    )

    assert within.exit_codes == [143, 143]
    assert goes_on.record["step"] == 4 + 9
    assert refused.exit_codes == [2]
    assert (
        "trainer.devices: 1 ranks cannot go on within an epoch that 2 began; use trainer.devices=2, or a checkpoint of "
        "an epoch's end"
    ) in refused.causes[0]


def test_another_models_checkpoint_is_refused(tmp_path: Path) -> None:
    first = train(tiny_config(tmp_path, "trainer.max_epochs=1"), tmp_path / "first")
    start = first.layout.checkpoint("last")

    second = train(tiny_config(tmp_path, f"ckpt_path={start}", "task.model.width=64"), tmp_path / "second")

    assert second.exit_codes == [2]
    assert "holds another model's weights" in second.causes[0]


def test_a_task_that_is_a_function_reports_and_returns(tmp_path: Path) -> None:
    config = compose("task=trivial", f"paths.cache_dir={tmp_path}", "managers/wandb=disabled", "logger=none")

    run = train(config, tmp_path / "run")

    assert run.record["metrics"] == {"loss": pytest.approx(1 / 3)}
    assert [line["loss"] for line in run.history()][:3] == [1.0, 0.5, pytest.approx(1 / 3)]
