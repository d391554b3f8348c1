"""Every sampler of the group is built from its node, and draws no point twice because of its seed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest

from project.common.errors import ConfigError
from project.sweeps.sampling.samplers import close_sampler, make_sampler, n_grid_points
from project.sweeps.search.search_space import read_search_space
from tests.helpers import samplers
from tests.helpers.samplers import halved, in_parts, nodes, sample, space_of
from tests.helpers.training import ROOT

SEEDED = ["tpe", "random", "cmaes", "nsgaii", "nsgaiii", "qmc", "grid"]
KEY = r"^hydra\.sweeper\.sampler"


def seeded(name: str, **changed: Any) -> dict[str, Any]:
    return nodes()[name] | {"seed": 7} | changed


def test_no_sampler_of_the_group_is_overlooked() -> None:
    assert set(nodes()) == {*SEEDED, "gp", "motpe"}


@pytest.mark.filterwarnings("error::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("name", SEEDED)
def test_every_node_builds_its_sampler_and_samples(name: str) -> None:
    node = nodes()[name]
    sampler = make_sampler(node, space=space_of(node))

    assert sampler.name.lower().startswith(name)
    assert len(sample(optuna.create_study(sampler=sampler), space_of(node), 3)) == 3
    sampler.close()


@pytest.mark.case("08")
@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_gives_each_trial_its_point_also_when_the_sweep_goes_on(name: str) -> None:
    at_once = in_parts(seeded(name), 14)

    assert in_parts(seeded(name), 9, 5) == at_once
    assert len({str(point) for point in at_once}) == 14
    assert in_parts(seeded(name, seed=8), 14) != at_once


@pytest.mark.case("08")
@pytest.mark.parametrize("name", SEEDED)
def test_two_samplers_of_one_study_do_not_draw_the_same_points(name: str, tmp_path: Path) -> None:
    node, url = seeded(name), f"sqlite:///{tmp_path}/study.db"
    space = space_of(node)
    studies = [
        optuna.create_study(storage=url, study_name="s", load_if_exists=True, sampler=make_sampler(node, space=space))
        for _ in range(2)
    ]
    trials = [study.ask() for _ in range(4) for study in studies]

    assert len({str(space.suggest(trial)) for trial in trials}) == 8


@pytest.mark.slow
@pytest.mark.case("08")
def test_two_processes_of_one_study_draw_the_points_of_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    study = optuna.create_study(storage=url, study_name="s")
    command = [sys.executable, "-m", "tests.helpers.samplers", "storage", url, "6"]
    with subprocess.Popen(command, cwd=ROOT) as one, subprocess.Popen(command, cwd=ROOT) as other:
        assert (one.wait(60), other.wait(60)) == (0, 0)

    assert [trial.params for trial in study.trials] == in_parts(seeded("random"), 12)


@pytest.mark.parametrize("name", [*SEEDED, "gp"])
def test_every_sampler_works_with_a_pruner_that_shows_it_a_part_of_the_study(name: str, served: int) -> None:
    node = seeded(name)
    sampler = make_sampler(node | ({"n_startup_trials": 2} if name == "gp" else {}), space=space_of(node))
    pruner = optuna.pruners.HyperbandPruner(max_resource=9)
    study = optuna.create_study(sampler=sampler, pruner=pruner)
    points = halved(study, space_of(node), 14)
    close_sampler(sampler)

    assert len(points) == 14
    assert {trial.state.name for trial in study.trials} == {"COMPLETE", "PRUNED"}


def test_samplers_within_a_sampler_are_seeded_by_their_trial_too() -> None:
    node = seeded("cmaes", independent_sampler={"_target_": "optuna.samplers.RandomSampler", "seed": 5})

    assert in_parts(node, 4) == in_parts(node, 1, 1, 2)


def test_without_a_seed_the_points_are_others_each_time() -> None:
    assert in_parts(nodes()["random"], 3) != in_parts(nodes()["random"], 3)


@pytest.mark.parametrize("name", ["tpe", "nsgaii", "nsgaiii", "random", "qmc"])
def test_several_objectives_are_sampled(name: str) -> None:
    node = seeded(name)
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=make_sampler(node, space=space_of(node)))

    assert len(sample(study, space_of(node), 12)) == 12


def test_points_of_nsgaiii_may_be_given() -> None:
    sampler = make_sampler(
        seeded("nsgaiii", reference_points=[[0.0, 1.0], [1.0, 0.0]]), space=read_search_space({}, [])
    )

    assert sampler.sampler._elite_population_selection_strategy._reference_points.shape == (2, 2)  # type: ignore[attr-defined]


def test_the_default_keeps_trials_apart_that_run_at_once() -> None:
    """The group's own default has the keys of the plugin's, so that what its users type still works."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(ROOT / "conf")):
        config = compose("config", overrides=["hydra/sweeper=optuna"], return_hydra_config=True)
    node = OmegaConf.to_container(config.hydra.sweeper.sampler)

    assert isinstance(node, dict)
    assert set(node) == set(nodes()["tpe"])
    assert node == nodes()["tpe"] | {"constant_liar": True}
    assert make_sampler(node, space=read_search_space({}, [])).sampler._constant_liar is True  # type: ignore[arg-type, attr-defined]


def test_the_removed_sampler_says_what_to_use_instead() -> None:
    with pytest.raises(
        ConfigError, match=KEY + r": The 'motpe' sampler was removed .* Use 'hydra/sweeper/sampler=tpe'"
    ):
        make_sampler(nodes()["motpe"], space=read_search_space({}, []))


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cmaes", None)

    with pytest.raises(ConfigError, match=KEY + r": needs the package cmaes; `make extras EXTRAS=cmaes` installs it"):
        make_sampler(nodes()["cmaes"], space=read_search_space({}, []))


@pytest.mark.parametrize(
    ("name", "changed", "problem"),
    [
        ("tpe", {"n_startup_trial": 3}, r"\.n_startup_trial: TPESampler takes no 'n_startup_trial'; did you mean"),
        ("tpe", {"n_startup_trials": "ten"}, r"\.n_startup_trials: 'ten' does not fit; use a whole number"),
        ("tpe", {"group": True}, r": ``group`` option can only be enabled when"),
        ("random", {"seed": -1}, r"\.seed: -1 does not fit; use a whole number from 0 to 4294967295, or null"),
        ("random", {"seed": 1.5}, r"\.seed: 1\.5 does not fit; use a whole number or null"),
        ("nsgaii", {"population_size": 1}, r"\.population_size: "),
        ("nsgaii", {"populationsize": 9}, r"\.populationsize: "),
        ("qmc", {"qmc_type": "sobel"}, r"\.qmc_type: "),
        ("gp", {"n_startup": 1}, r"\.n_startup: GPSampler takes no 'n_startup'"),
        ("random", {"_target_": "os.system"}, r"\._target_: 'os\.system' may not be called"),
        ("random", {"_target_": "optuna.samplers.MedianSampler"}, r"\._target_: 'optuna\.samplers\.MedianSampler' can"),
        ("random", {"_target_": "optuna.samplers._random.np.load"}, r"\._target_: "),
        ("nsgaii", {"crossover": "uniform"}, r"\.crossover: 'uniform' names nothing to build; give it a _target_"),
        ("cmaes", {"independent_sampler": {"_target_": "os.system"}}, r"\.independent_sampler\._target_: "),
    ],
)
def test_what_does_not_fit_is_refused_by_its_key(name: str, changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=KEY + problem):
        make_sampler(nodes()[name] | changed, space=read_search_space({}, []))


@pytest.mark.parametrize("node", [None, {}, {"seed": 1}])
def test_a_node_that_names_nothing_is_refused(node: dict[str, Any] | None) -> None:
    with pytest.raises(ConfigError, match=KEY + r": names nothing to build; choose one by hydra/sweeper/sampler=…"):
        make_sampler(node, space=read_search_space({}, []))


def test_what_makes_no_sampler_is_refused() -> None:
    node = {"_target_": "optuna.samplers.nsgaii.UniformCrossover"}

    with pytest.raises(ConfigError, match=KEY + r": 'optuna\.samplers\.nsgaii\.UniformCrossover' makes no sampler"):
        make_sampler(node, space=read_search_space({}, []))


def test_only_a_grid_has_an_end() -> None:
    assert n_grid_points(make_sampler(nodes()["random"], space=read_search_space({}, []))) is None
    assert n_grid_points(make_sampler(nodes()["grid"], space=read_search_space(samplers.GRID, []))) == 15
