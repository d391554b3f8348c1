"""Evaluating a checkpoint: the same numbers as the training's own, predictions a row per row, errors that name keys."""

from pathlib import Path
from typing import Any

import pytest

from project.common.errors import ConfigError
from project.common.files.atomic import write_json
from project.eval import find_checkpoint
from project.training.stored_run import apply_overrides
from tests.helpers.training import Run, tiny_config, train
from tests.helpers.tree import running


@pytest.fixture
def run(tmp_path: Path, served: int) -> Run:
    trained = train(tiny_config(tmp_path, "trainer.max_epochs=2"), tmp_path / "run")
    write_json(trained.layout.config, {})
    return trained


def evaluate(run: Run, *arguments: str) -> tuple[int, str]:
    checkpoint = f"ckpt={run.layout.checkpoint('best')}"
    command = ["python", "eval.py", checkpoint, *arguments]
    with running(command, output=run.layout.run_dir / "output", environ={"PROJECT_ALLOW": "tests.helpers.*"}) as tree:
        return tree.wait(90), tree.text


@pytest.mark.slow
def test_the_numbers_are_those_of_the_training(run: Run) -> None:
    from pyarrow import parquet

    code, text = evaluate(run, "loader.batch_size=3")

    assert code == 0, text
    assert f"{run.record['metrics']['test/acc']:.4f}" in text
    assert f"{run.record['metrics']['test/loss']:.4f}" in text
    table = parquet.read_table(run.layout.predictions)
    assert table.column_names == ["row", "text", "label", "prediction", "probabilities"]
    assert table["row"].to_pylist() == list(range(7))
    right = [a == b for a, b in zip(table["label"].to_pylist(), table["prediction"].to_pylist(), strict=True)]
    assert sum(right) / 7 == pytest.approx(run.record["metrics"]["test/acc"])


@pytest.mark.slow
def test_an_unknown_key_or_split_is_refused(run: Run) -> None:
    refusals = {
        "loader.bach_size=3": "loader.bach_size: is not in the run's configuration; see its config.yaml",
        "split=foo": "split: 'foo' has no rows; there are train, val, test",
        "split=null": "split: 'None' has no rows; there are train, val, test",
    }

    for argument, line in refusals.items():
        code, text = evaluate(run, argument)

        assert (code, text.splitlines()[-1]) == (2, line), text
        assert "Traceback" not in text
        assert not run.layout.predictions.exists()


def test_a_changed_key_reaches_the_managers_that_take_it() -> None:
    config: dict[str, Any] = {"loader": {"batch_size": 4}, "managers": {"batch": {"batch_size": 4}}}

    changed = apply_overrides(config, {"loader.batch_size": 64})

    assert changed == {"loader": {"batch_size": 64}, "managers": {"batch": {"batch_size": 64}}}
    assert config["loader"]["batch_size"] == 4


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"loader\.typo: is not in the run's configuration"):
        apply_overrides({"loader": {"batch_size": 4}, "managers": {}}, {"loader.typo": 1})


def test_a_runs_folder_stands_for_its_best_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    assert find_checkpoint(tmp_path).name == "last.ckpt"

    (tmp_path / "checkpoints" / "best.ckpt").touch()

    assert find_checkpoint(tmp_path).name == "best.ckpt"
