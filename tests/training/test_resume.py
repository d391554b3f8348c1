"""A training that is killed, stopped or fails and then goes on ends as the uninterrupted one, to the bit."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.training import Run, equal, tiny_config, train, with_probe

pytestmark = pytest.mark.usefixtures("served")


def assert_same(resumed: Run, whole: Run) -> None:
    """Weights, optimizer, schedule, metrics and history are equal."""
    one, other = resumed.checkpoint(), whole.checkpoint()
    for key in ("state_dict", "weights_in_training", "optimizer_states", "lr_schedulers", "epoch", "global_step"):
        assert equal(one.get(key), other.get(key)), key
    assert resumed.record["metrics"] == whole.record["metrics"]
    assert resumed.history() == whole.history()


def go_on(config: dict[str, Any], run_dir: Path, *, probes: list[str], at: str, **options: Any) -> Run:
    """Runs once per probe, each run ended by it, and then to the end."""
    config = with_probe(config, at)
    for attempt, probe in enumerate(probes, start=1):
        ended = train(config, run_dir, attempt=attempt, environ={"PROBE": probe}, **options)
        assert any(ended.exit_codes), f"the probe {probe} did not act"
    return train(config, run_dir, attempt=len(probes) + 1, **options)


# Falls at each validation, so that forgetting or repeating one shows.
PLATEAU = ["+task/scheduler=plateau", "task.scheduler.patience=0", "task.scheduler.threshold=100.0"]
# 34 rows in batches of 4: 9 micro-batches an epoch, so that 2 and 4 do not divide them.
CASES = {
    "plain": [],
    "accumulated by 2": ["loader.effective_batch_size=8"],
    "accumulated by 4": ["loader.effective_batch_size=16"],
    "validated within the epoch": ["trainer.val_check_interval=4"],
    "validated after a share of the epoch": ["trainer.val_check_interval=0.5"],
    "a rate that falls at a plateau": PLATEAU,
    "a plateau seen within the epoch": [*PLATEAU, "trainer.val_check_interval=0.5", "task.scheduler.monitor=val/loss"],
    "early stopping": ["callbacks=early_stopping", "callbacks.checkpoint.every_s=null"],
    "training metrics": ["managers/metrics=train"],
    "averaged weights": ["callbacks=ema", "callbacks.checkpoint.every_s=null", "trainer.val_check_interval=4"],
}


@pytest.mark.parametrize("overrides", CASES.values(), ids=CASES.keys())
def test_a_killed_training_goes_on_exactly(tmp_path: Path, overrides: list[str]) -> None:
    config = tiny_config(tmp_path, "callbacks.checkpoint.every_n_steps=1", *overrides)
    whole = train(config, tmp_path / "whole")

    resumed = go_on(config, tmp_path / "resumed", probes=["step=3,do=kill", "step=5,do=kill"], at="batch_end")

    assert_same(resumed, whole)


@pytest.mark.parametrize("at", ["batch_start", "validation", "epoch_end"])
def test_it_may_be_killed_anywhere(tmp_path: Path, at: str) -> None:
    config = tiny_config(tmp_path, "callbacks.checkpoint.every_n_steps=2", *PLATEAU)
    whole = train(config, tmp_path / "whole")

    resumed = go_on(config, tmp_path / "resumed", probes=["step=9,do=kill"], at=at)

    assert_same(resumed, whole)


def test_a_rate_falls_at_each_plateau_as_it_says(tmp_path: Path) -> None:
    run = train(tiny_config(tmp_path, *PLATEAU, "task.optimizer.lr=0.008"), tmp_path / "run")

    rates = {line["epoch"]: line["train/lr"] for line in run.history() if "train/lr" in line}
    assert rates == {0: 0.008, 1: 0.008, 2: 0.004}  # the first validation is the best one yet
    assert run.checkpoint()["lr_schedulers"][0]["_last_lr"] == [0.002, 0.002]


def test_a_plateau_of_what_is_not_measured_is_refused(tmp_path: Path) -> None:
    run = train(tiny_config(tmp_path, *PLATEAU, "task.scheduler.monitor=train/loss"), tmp_path / "run")

    assert run.exit_codes == [2]
    assert "'train/loss' is not logged; use one of" in run.causes[0]


def test_without_a_checkpoint_it_starts_again(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    whole = train(config, tmp_path / "whole")

    resumed = go_on(config, tmp_path / "resumed", probes=["step=3,do=kill"], at="batch_end")

    assert_same(resumed, whole)


@pytest.mark.case("88")
@pytest.mark.parametrize("step", [1, 5, 9])
def test_a_stop_request_saves_and_goes_on_exactly(tmp_path: Path, step: int) -> None:
    config = tiny_config(tmp_path)
    whole = train(config, tmp_path / "whole")
    stopped = train(with_probe(config, "batch_end"), tmp_path / "stopped", environ={"PROBE": f"step={step},do=stop"})

    resumed = train(config, tmp_path / "stopped", attempt=2)

    assert stopped.exit_codes == [143]
    assert f"step {step}" in resumed.log.rpartition("goes on from")[2].splitlines()[0]
    assert_same(resumed, whole)


@pytest.mark.case("88")
def test_a_failing_step_leaves_a_checkpoint_of_what_came_before(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    whole = train(config, tmp_path / "whole")

    resumed = go_on(config, tmp_path / "resumed", probes=["step=5,do=raise"], at="batch_start")

    assert "step 5" in resumed.log.rpartition("goes on from")[2].splitlines()[0]
    assert_same(resumed, whole)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "action"), [(0, "kill"), (2, "raise")])
def test_two_ranks_go_on_exactly(tmp_path: Path, workers: int, action: str) -> None:
    """With workers a rank that is killed leaves its semaphores to the resource tracker, which is this session's."""
    config = tiny_config(
        tmp_path, "trainer.devices=2", f"loader.num_workers={workers}", "callbacks.checkpoint.every_n_steps=1", *PLATEAU
    )
    whole = train(config, tmp_path / "whole", world_size=2)

    resumed = go_on(config, tmp_path / "resumed", probes=[f"rank=1,step=3,do={action}"], at="batch_end", world_size=2)

    assert_same(resumed, whole)


@pytest.mark.case("26")
def test_a_damaged_last_checkpoint_is_passed_over(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, "callbacks.checkpoint.every_n_steps=2")
    whole = train(config, tmp_path / "whole")
    train(with_probe(config, "batch_end"), tmp_path / "resumed", environ={"PROBE": "step=13,do=kill"})
    last = tmp_path / "resumed" / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:-100])

    resumed = train(config, tmp_path / "resumed", attempt=2)

    assert "last.ckpt is damaged" in resumed.log
    assert_same(resumed, whole)
