"""Language models in a rank of their own: numbers that can be computed by hand, a sample, the same masks again."""

import math
from pathlib import Path
from typing import Any

import pytest

from project.common.files.atomic import write_json
from tests.helpers.training import Run, compose, train, write_data
from tests.helpers.tree import running

pytestmark = pytest.mark.usefixtures("served")

TINY = (
    "task.tokenizer.vocab_size=300",
    "task.tokenizer.min_frequency=1",
    "task.data.columns.group=null",
    "task.data.split=null",
    "task.data.max_length=8",
    "trainer.max_epochs=2",
    "trainer.accelerator=cpu",
    "loader.batch_size=4",
    "managers/wandb=disabled",
    "managers.directory.min_free_mb=0",
    "name=tiny",
)
CAUSAL = ("task.model.n_embd=8", "task.model.n_layer=1", "task.model.n_head=2", "task.at_end.max_new_tokens=5")
MASKED = (
    "task.model.hidden_size=8",
    "task.model.intermediate_size=16",
    "task.model.num_hidden_layers=1",
    "task.model.num_attention_heads=2",
)


def config(folder: Path, *overrides: str) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    files = ",".join(f"{split}:'{path}'" for split, path in write_data(folder).items())
    places = (f"paths.runs_dir={folder}/runs", f"paths.cache_dir={folder}/cache", f"task.data.files={{{files}}}")
    return compose(*overrides, *TINY, *places)


def evaluate(run: Run) -> dict[str, list[Any]]:
    from pyarrow import parquet

    write_json(run.layout.config, {})
    command = ["python", "eval.py", f"ckpt={run.layout.checkpoint('best')}", "loader.batch_size=3"]
    with running(command, output=run.layout.run_dir / "output") as tree:
        assert tree.wait(90) == 0, tree.text
    found: dict[str, list[Any]] = parquet.read_table(run.layout.predictions).to_pydict()
    return found


def perplexity(predictions: dict[str, list[Any]]) -> float:
    pairs = list(zip(predictions["loss"], predictions["n_tokens"], strict=True))
    return math.exp(sum(loss * n for loss, n in pairs) / sum(n for _, n in pairs))


@pytest.mark.slow
def test_a_causal_model_reports_perplexity_beside_its_baseline_and_writes_a_sample(tmp_path: Path) -> None:
    run = train(config(tmp_path, "task=language_model", *CAUSAL), tmp_path / "run")

    metrics, (own, unigram) = run.record["metrics"], run.record["rows"]
    assert metrics["test/perplexity"] == pytest.approx(math.exp(metrics["test/loss"]))
    assert own["val/perplexity"] == metrics["val/perplexity"]
    assert unigram["model"] == "unigram"
    assert 1 < unigram["test/perplexity"] < 300
    sample = (run.layout.run_dir / "sample.txt").read_text().strip()
    assert sample
    assert sample in run.log
    assert perplexity(evaluate(run)) == pytest.approx(metrics["test/perplexity"], rel=1e-4)


@pytest.mark.slow
def test_a_masked_model_sees_the_same_masks_in_every_run_with_workers_or_without(tmp_path: Path) -> None:
    task = ("task=masked_language_model", *MASKED)

    one = train(config(tmp_path, *task), tmp_path / "one")
    other = train(config(tmp_path, *task, "loader=workers", "loader.num_workers_eval=1"), tmp_path / "other")
    changed = train(config(tmp_path, *task, "seed=2"), tmp_path / "changed")

    assert one.record["metrics"] == other.record["metrics"] != changed.record["metrics"]
    predictions = evaluate(one)
    assert perplexity(predictions) == pytest.approx(one.record["metrics"]["test/perplexity"], rel=1e-4)
    assert all(0 < n < 8 for n in predictions["n_tokens"])


def test_smoothing_a_target_without_classes_is_refused(tmp_path: Path) -> None:
    run = train(config(tmp_path, "task=language_model", "task.label_smoothing=0.1", *CAUSAL), tmp_path / "run")

    assert run.exit_codes == [2]
    assert "task.label_smoothing: spreads a target over classes" in run.causes[0]
