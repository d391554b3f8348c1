"""A grid has all points of a search space, and each is tried once."""

from typing import Any

import optuna
import pytest

from project.common.errors import ConfigError
from project.common.whitelist import ALLOW_VARIABLE
from project.sweeps.sampling.grid import grid_of
from project.sweeps.sampling.samplers import SweepSampler, make_sampler, n_grid_points
from project.sweeps.search.search_space import read_search_space
from tests.helpers import search_spaces
from tests.helpers.samplers import GRID, nodes, sample


def grid(params: dict[str, str], *, seed: int | None = None) -> SweepSampler:
    return make_sampler(nodes()["grid"] | {"seed": seed}, space=read_search_space(params, []))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("range(0, 1, 0.1)", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        ("range(0.1, 0.5, 0.2)", [0.1, 0.3]),
        ("range(1, 8, 3)", [1, 4, 7]),
        ("int(interval(1, 3))", [1, 2, 3]),
        ("tag(log, int(interval(1, 3)))", [1, 2, 3]),
        ("choice(null, 1, a)", [None, 1, "a"]),
        ("choice([1, 2], {a: b})", ["[1,2]", "{a:b}"]),
        ("interval(2, 2)", [2.0]),
    ],
)
def test_the_values_of_a_key(text: str, values: list[Any]) -> None:
    assert grid_of(read_search_space({"x": text}, [])) == {"x": values}


@pytest.mark.case("08")
def test_no_point_comes_twice_also_when_the_sweep_goes_on_and_trials_fail() -> None:
    space = read_search_space(GRID, [])
    study = optuna.create_study(sampler=grid(GRID))
    points = sample(study, space, 4) + sample(study, space, 3, state="FAIL")
    study.sampler = grid(GRID)
    points += sample(study, space, 8)

    assert n_grid_points(study.sampler) == 15
    assert len({str(point) for point in points}) == 15


def test_a_point_that_was_enqueued_takes_none_of_the_grid_away() -> None:
    space = read_search_space(GRID, [])
    study = optuna.create_study(sampler=grid(GRID))
    study.enqueue_trial({"x": 0.1, "layers": "[1]"})
    points = sample(study, space, 16)

    assert points[0] == {"x": 0.1, "layers": "[1]"}
    assert len({str(point) for point in points[1:]}) == 15


def test_the_last_point_is_told_like_any_other() -> None:
    """Optuna's grid would stop a loop that is not there, with an error."""
    space = read_search_space({"x": "1,2"}, [])
    study = optuna.create_study(sampler=grid({"x": "1,2"}))

    sample(study, space, 2)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"lr": "interval(0, 1)"}, r"^lr: interval\(0\.0, 1\.0\) has no end of values for a grid"),
        ({"a": "range(0, 2000)", "b": "range(0, 2000)"}, r"^hydra\.sweeper\.sampler: a grid of 4,000,000 points"),
    ],
)
def test_what_has_no_end_is_refused(params: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        grid(params)


def test_a_function_that_adds_to_the_grid_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_VARIABLE, search_spaces.ALLOWED)
    space = read_search_space({}, [], custom_search_space=f"{search_spaces.__name__}.suggest_name")

    with pytest.raises(ConfigError, match=r"^hydra\.sweeper\.custom_search_space: the grid must be known before"):
        make_sampler(nodes()["grid"], space=space)
