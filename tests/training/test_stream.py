"""Training on a stream: exact after a kill with any number of workers, and uneven ranks are told before they hang."""

from pathlib import Path
from typing import Any

import pytest

from project.common.errors import ConfigError
from project.training.stream import StreamBatches, check_settings
from tests.helpers.training import compose, equal, tiny_config, train, with_probe
from tests.helpers.uneven import Drawn

pytestmark = pytest.mark.usefixtures("served")


def streamed(folder: Path, *overrides: str, n_rows: int = 34, **more: int) -> dict[str, Any]:
    config = tiny_config(folder, "task.scheduler=null", "callbacks.checkpoint.every_n_steps=1", *overrides)
    path = config["task"]["data"]["files"]["train"]
    config["task"]["warmup_fraction"] = None
    node = {"_target_": f"{Drawn.__module__}.Drawn", "path": path, "n_rows": n_rows, **more}
    config["managers"]["data"]["stream"] = config["task"]["data"]["stream"] = node
    return config


@pytest.mark.parametrize(
    ("n_ranks", "workers", "overrides"),
    [
        (1, (0, 0), ["loader.effective_batch_size=8"]),
        (1, (1, 2), ["trainer.val_check_interval=4"]),
        (2, (0, 2), []),
    ],
    ids=["alone", "with other workers", "two ranks"],
)
def test_a_stream_goes_on_exactly(tmp_path: Path, n_ranks: int, workers: tuple[int, int], overrides: list[str]) -> None:
    """Killed in the second epoch and taken up with another number of workers; the uninterrupted one had none."""
    overrides = [f"trainer.devices={n_ranks}", *overrides]
    whole = train(streamed(tmp_path, *overrides), tmp_path / "whole", world_size=n_ranks)
    first, second = (streamed(tmp_path, *overrides, f"loader.num_workers={n}") for n in workers)
    step = whole.record["step"] // 2

    train(
        with_probe(first, "batch_end"),
        tmp_path / "killed",
        world_size=n_ranks,
        environ={"PROBE": f"step={step},do=kill"},
    )
    resumed = train(second, tmp_path / "killed", attempt=2, world_size=n_ranks)

    assert "goes on from" in resumed.log
    for key in ("state_dict", "optimizer_states", "epoch", "global_step"):
        assert equal(resumed.checkpoint()[key], whole.checkpoint()[key]), key
    assert resumed.record["metrics"] == whole.record["metrics"]
    assert resumed.history() == whole.history()
    assert whole.record["epoch"] == 3


@pytest.mark.case("13")
def test_ranks_whose_streams_differ_are_told_before_they_hang(tmp_path: Path) -> None:
    """Rank 1 reads two rows more: enough for one more round of batches."""
    config = streamed(tmp_path, "trainer.devices=2", n_rows=36, more=2)

    run = train(config, tmp_path / "run", world_size=2, limit_s=30)

    assert run.exit_codes == [2, 2]
    for cause in run.causes:
        assert "task.data.stream: rank 0 has 4 batches, rank 1 has 5; every rank must read the same rows" in cause


def test_a_stream_that_is_too_short_for_all_ranks_or_for_where_it_was_is_told(tmp_path: Path) -> None:
    empty = train(streamed(tmp_path, n_rows=0), tmp_path / "empty", limit_s=30)
    killed = with_probe(streamed(tmp_path), "batch_end")
    train(killed, tmp_path / "run", environ={"PROBE": "step=6,do=kill"})
    shrunk = train(streamed(tmp_path, n_rows=9), tmp_path / "run", attempt=2)

    assert "task.data.stream: gave no batch: 1 ranks need more than 0 rows" in empty.causes[0]
    assert "task.data.stream: ends after 9 rows, and epoch 1 goes on after 20 rows" in shrunk.causes[0]


def test_an_unknown_label_is_told_with_its_row(tmp_path: Path) -> None:
    config = streamed(tmp_path)
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "aa", "label": "zz"}\n')
    config["managers"]["data"]["stream"]["path"] = str(other)

    run = train(config, tmp_path / "run", limit_s=30)

    assert (
        "task.data.stream: Drawn row 0: label 'zz' is not in the split train; labels there: aa, bb, cc" in run.causes[0]
    )


def test_what_needs_the_length_of_an_epoch_is_refused_together() -> None:
    overrides = ("trainer.val_check_interval=0.5", "trainer.limit_train_batches=0.1", "managers.batch.last_batch=merge")

    with pytest.raises(ConfigError) as caught:
        check_settings(compose(*overrides, "managers/batch=token_budget"))

    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "trainer.val_check_interval",
        "trainer.limit_train_batches",
        "managers.batch.token_budget",
        "managers.batch.last_batch",
    ]
    check_settings(compose("trainer.val_check_interval=4"))


@pytest.mark.parametrize(("n_rows", "drop_last", "is_complete"), [(8, True, True), (7, True, False), (5, False, True)])
def test_a_round_is_complete_when_every_rank_has_a_batch(n_rows: int, drop_last: bool, is_complete: bool) -> None:
    assert StreamBatches(batch_size=4, drop_last=drop_last, world_size=2)._is_complete(n_rows) == is_complete
