"""A trial in a sweep is the same run as one alone."""

import json
from pathlib import Path

import pytest

from tests.helpers.runs import run_folder, started, tiny

pytestmark = pytest.mark.slow


@pytest.mark.case("46")
def test_a_run_alone_gives_bit_equal_results_to_the_same_in_a_sweep(tmp_path: Path) -> None:
    alone, sweep = tmp_path / "alone", tmp_path / "sweep"
    for folder in (alone, sweep):
        folder.mkdir()

    with started(tiny(alone, "trainer.max_epochs=1", "seed=3"), alone) as tree:
        assert tree.wait(100) == 0, tree.text
    search = ("-m", "hydra/sweeper=basic", f"hydra.sweep.dir={sweep}/jobs", "seed=2,3")
    with started(tiny(sweep, "trainer.max_epochs=1", *search), sweep) as tree:
        assert tree.wait(100) == 0, tree.text

    expected = json.loads(run_folder(alone).metrics.read_text())
    second = json.loads((sweep / "jobs" / "1" / "metrics.json").read_text())
    first = json.loads((sweep / "jobs" / "0" / "metrics.json").read_text())
    assert {name: value for name, value in second.items() if "_s" not in name} == {
        name: value for name, value in expected.items() if "_s" not in name
    }
    assert first["train/loss"] != second["train/loss"]
