"""How many failures a sweep bears: the same keys for both sweepers, an exact number of trials, an exit code."""

from pathlib import Path

import pytest

from tests.helpers import sweep_runs as sweeps
from tests.helpers.sweep_runs import BASIC, GRID, Sweep

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("served")]

POINTS = "seed={}(1,2,3,4,5,6)"
SWEEPERS = {"study": (GRID, POINTS.format("choice")), "basic": (BASIC, "seed=1,2,3,4,5,6")}


def n_begun(folder: Path) -> int:
    """How many trials were started."""
    return len(list(folder.glob("sweeps/x/**/processes/trial-*.json")))


@pytest.mark.case("05")
@pytest.mark.parametrize("sweeper", SWEEPERS)
@pytest.mark.parametrize(
    ("limit", "n"), [("fail_fast=true", 1), ("max_failures=2", 2), ("max_failures=1", 1)], ids=["fast", "two", "one"]
)
def test_a_sweep_ends_at_the_failure_that_is_one_too_many(sweeper: str, limit: str, n: int, tmp_path: Path) -> None:
    code = sweeps.run_here(tmp_path, "end_by", *SWEEPERS[sweeper], f"hydra.launcher.{limit}", "+task.run.way=raise")

    assert code == 1
    assert n_begun(tmp_path) == n


def test_what_runs_beside_the_last_failure_is_put_back(tmp_path: Path) -> None:
    ways = (GRID, "+task.run.way=choice(raise,work)", "hydra.sweeper.n_jobs=2", "hydra.launcher.fail_fast=true")

    code = sweeps.run_here(tmp_path, "end_by", *ways)

    assert code == 1
    assert n_begun(tmp_path) == 2
    assert sorted(Sweep.of(tmp_path).states()) == ["FAIL", "FAIL", "WAITING"]


@pytest.mark.parametrize(("rate", "n"), [(0.0, 1), (0.99, 1), (1.0, 6)])
def test_a_sweep_ends_when_too_large_a_share_has_failed(rate: float, n: int, tmp_path: Path) -> None:
    search = (*SWEEPERS["study"], f"hydra.sweeper.max_failure_rate={rate}")

    code = sweeps.run_here(tmp_path, "end_by", *search, "+task.run.way=raise")

    assert code == 1
    assert n_begun(tmp_path) == n


def test_a_crashed_trial_is_tried_again_so_often_and_the_tries_know_the_first(tmp_path: Path) -> None:
    search = (GRID, "seed=choice(1,2)", "hydra.sweeper.max_retries=2", "+task.run.way=kill")

    code = sweeps.run_here(tmp_path, "end_by", *search)

    sweep = Sweep.of(tmp_path)
    trials = sweep.trials()
    seeds = {trial.number: trial.params["seed"] for trial in trials}
    firsts = [trial for trial in trials if "first_try" not in trial.user_attrs]
    assert code == 1
    assert sweep.states() == ["FAIL"] * 6
    assert len(firsts) == 2
    for trial in trials:
        assert seeds[trial.user_attrs.get("first_try", trial.number)] == seeds[trial.number]
    assert sorted(trial.user_attrs.get("tries", 0) for trial in trials) == [0, 0, 1, 1, 2, 2]
    assert sorted(sweep.layouts()) == list(range(6)), "each try has a folder of its own"
