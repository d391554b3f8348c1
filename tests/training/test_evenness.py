"""Ranks with different numbers of batches are told as numbers, before they wait for each other."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.training import tiny_config, train
from tests.helpers.uneven import OneMoreOnRankOne, filtered

pytestmark = pytest.mark.usefixtures("served")


def filtered_config(folder: Path, *overrides: str) -> dict[str, Any]:
    """Rows of 40 in the training split, of which rank 1 leaves out sixteen; batches of 4 rows."""
    config = tiny_config(folder, "trainer.devices=2", "trainer.max_epochs=1", *overrides, train=40)
    path = config["task"]["data"]["files"]["train"]
    source = {"_target_": f"{filtered.__module__}.filtered", "path": path}
    split = {"_target_": "project.tasks.splits.split_by_group", "fractions": {"train": 0.8, "val": 0.1, "test": 0.1}}
    config["managers"]["data"] |= {"files": None, "source": source, "split": split | {"seed": 0}}
    config["managers"]["data"]["columns"] |= {"group": "text"}
    return config


@pytest.mark.case("13")
def test_a_batch_sampler_that_is_longer_on_one_rank_is_told(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, "trainer.devices=2")
    config["managers"]["batch"]["_target_"] = f"{OneMoreOnRankOne.__module__}.{OneMoreOnRankOne.__name__}"

    run = train(config, tmp_path / "run", world_size=2, limit_s=30)

    assert run.exit_codes == [2, 2]
    for cause in run.causes:
        assert "task.data: rank 0 has 4 batches, rank 1 has 5; ranks that differ wait for each other" in cause


@pytest.mark.case("13")
def test_a_filter_that_drops_rows_on_one_rank_does_so_for_all_or_is_told(tmp_path: Path) -> None:
    """On one machine the rows are prepared once for all ranks; two caches are two machines."""
    shared = filtered_config(tmp_path)
    two = [filtered_config(tmp_path, f"paths.cache_dir={tmp_path}/machine{rank}") for rank in range(2)]

    once = train(shared, tmp_path / "once", world_size=2, limit_s=30)
    apart = train(two, tmp_path / "apart", world_size=2, limit_s=30)

    assert once.exit_codes == [0, 0]
    assert apart.exit_codes == [2, 2]
    assert "task.data: rank 0 has 3 batches, rank 1 has 2" in apart.causes[0]
    assert apart.causes[0] == apart.causes[1]


def test_other_labels_on_one_rank_are_told(tmp_path: Path) -> None:
    configs = [tiny_config(tmp_path / str(rank), "trainer.devices=2") for rank in range(2)]
    train_file = Path(configs[1]["task"]["data"]["files"]["train"])
    train_file.write_text(train_file.read_text().replace('"label": "cc"', '"label": "dd"'))
    for split in ("val", "test"):
        path = Path(configs[1]["task"]["data"]["files"][split])
        path.write_text(path.read_text().replace('"label": "cc"', '"label": "dd"'))

    run = train(configs, tmp_path / "run", world_size=2, limit_s=30)

    assert run.exit_codes == [2, 2]
    assert "rank 0 has the labels aa, bb, cc, rank 1 has aa, bb, dd" in run.causes[0]
