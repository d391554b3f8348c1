"""Rows of numbers through the whole training: without text, tokenizer or a model of transformers."""

from pathlib import Path

import pytest

from project.common.files.atomic import write_json
from tests.helpers.training import compose, train
from tests.helpers.tree import running

OVERRIDES = (
    "+experiment=digits",
    "trainer.max_epochs=10",
    "trainer.accelerator=cpu",
    "managers/wandb=disabled",
    "managers.directory.min_free_mb=0",
)


@pytest.mark.slow
@pytest.mark.usefixtures("served")
def test_a_module_of_ones_own_trains_on_two_ranks_and_is_evaluated(tmp_path: Path) -> None:
    from pyarrow import parquet

    places = (f"paths.runs_dir={tmp_path}/runs", f"paths.cache_dir={tmp_path}/cache")
    run = train(compose(*OVERRIDES, *places), tmp_path / "run", world_size=2)

    accuracy, rows = run.record["metrics"]["test/acc"], run.record["rows"]
    assert [row["model"] for row in rows] == ["SmallCNN", "majority", "logistic_regression"]
    assert accuracy > 0.6
    assert rows[2]["test/acc"] > 0.9
    assert run.checkpoint()["run"]["tokenizer"] is None
    write_json(run.layout.config, {})
    command = ["python", "eval.py", f"ckpt={run.layout.checkpoint('best')}"]
    with running(command, output=tmp_path / "output") as tree:
        assert tree.wait(90) == 0, tree.text
    table = parquet.read_table(run.layout.predictions)
    assert table.column_names == ["row", "label", "prediction", "probabilities"]
    right = [a == b for a, b in zip(table["label"].to_pylist(), table["prediction"].to_pylist(), strict=True)]
    assert sum(right) / len(right) == pytest.approx(accuracy)
