import re
from pathlib import Path

import pytest

from tests.helpers.training import tiny_config, train

pytestmark = pytest.mark.usefixtures("served")
BASELINES = "task.baselines={_target_:project.tasks.baselines.compare,max_features:50}"


def test_baselines_stand_beside_the_model_and_are_fitted_once_per_data(tmp_path: Path) -> None:
    first = train(tiny_config(tmp_path, BASELINES), tmp_path / "first")
    kept = [(path, path.stat().st_mtime_ns) for path in (tmp_path / "cache").rglob("baselines/*.json")]
    second = train(tiny_config(tmp_path, BASELINES, "seed=2"), tmp_path / "second")

    assert [row["model"] for row in first.record["rows"]][1:] == ["majority", "word_ngrams", "char_ngrams"]
    assert len(kept) == 1
    assert [(path, path.stat().st_mtime_ns) for path, _ in kept] == kept
    assert second.record["rows"][1:] == first.record["rows"][1:]


def test_baselines_see_the_rows_of_the_model(tmp_path: Path) -> None:
    record = train(tiny_config(tmp_path, BASELINES), tmp_path / "run").record

    majority = record["rows"][1]
    assert majority["val/acc"] == pytest.approx(4 / 11)  # of 11 rows with three labels in turn
    assert majority["test/acc"] == pytest.approx(3 / 7)


def test_a_misspelt_objective_is_refused_before_training(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, "objective.metric=val/accuracy")

    run = train(config, tmp_path / "run")

    assert run.exit_codes == [2]
    assert re.search(r"objective\.metric: 'val/accuracy' is not logged; use one of .*val/acc", run.causes[0])
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
