"""Pruners are built from their configuration; what does not fit is refused by its key."""

import inspect
from typing import Any

import optuna
import pytest
import yaml

from project.common.errors import ConfigError
from project.sweeps.sampling.pruners import make_pruner
from tests.helpers.training import ROOT

FILES = {path.stem: path for path in (ROOT / "conf/hydra/sweeper/pruner").glob("*.yaml")}
CLASSES = {
    "none": optuna.pruners.NopPruner,
    "median": optuna.pruners.MedianPruner,
    "percentile": optuna.pruners.PercentilePruner,
    "hyperband": optuna.pruners.HyperbandPruner,
    "successive_halving": optuna.pruners.SuccessiveHalvingPruner,
    "threshold": optuna.pruners.ThresholdPruner,
    "patient": optuna.pruners.PatientPruner,
}


def read(name: str) -> dict[str, Any]:
    node = yaml.safe_load(FILES[name].read_text())
    assert isinstance(node, dict)
    return node


def test_no_file_is_overlooked() -> None:
    assert set(FILES) == set(CLASSES)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", CLASSES)
def test_every_file_names_every_argument_once_and_builds(name: str) -> None:
    node = read(name)

    assert {"_target_", *inspect.signature(CLASSES[name]).parameters} == set(node)
    assert type(make_pruner(node)) is CLASSES[name]


@pytest.mark.parametrize("name", CLASSES)
def test_every_value_is_explained(name: str) -> None:
    lines = FILES[name].read_text().splitlines()[2:]

    assert [line for line in lines if "#" not in line and not line.startswith(" ")] == []


def test_null_prunes_nothing() -> None:
    assert isinstance(make_pruner(None), optuna.pruners.NopPruner)


@pytest.mark.parametrize("name", ["median", "percentile", "threshold", "patient", "successive_halving", "hyperband"])
def test_a_worse_trial_is_pruned(name: str) -> None:
    changed: dict[str, dict[str, Any]] = {"threshold": {"upper": 1.0}, "patient": {"wrapped_pruner": None}}
    study = optuna.create_study(pruner=make_pruner(read(name) | changed.get(name, {})))
    for _ in range(12):
        good = study.ask()
        for step in range(1, 10):
            good.report(0.1, step)
            good.should_prune()
        study.tell(good, 0.1)
    pruned = []
    for _ in range(12):  # hyperband lets some of its brackets begin late
        bad = study.ask()
        for step in range(1, 10):
            bad.report(5.0 + step, step)
            pruned.append(bad.should_prune())
        study.tell(bad, 9.0)

    assert any(pruned)


def test_a_patient_pruner_asks_the_one_it_wraps() -> None:
    pruner = make_pruner(read("patient"))

    assert isinstance(pruner._wrapped_pruner, optuna.pruners.MedianPruner)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "changed", "problem"),
    [
        ("median", {"n_warmup_step": 3}, r"\.n_warmup_step: MedianPruner takes no 'n_warmup_step'; did you mean"),
        ("median", {"n_warmup_steps": -1}, r"\.n_warmup_steps: Number of warmup steps cannot be negative"),
        ("median", {"n_warmup_steps": "three"}, r"\.n_warmup_steps: 'three' does not fit; use a whole number"),
        ("percentile", {"percentile": 101.0}, r"\.percentile: Percentile must be between 0 and 100"),
        ("hyperband", {"max_resource": "all"}, r"\.max_resource: The 'max_resource' should be integer or 'auto'"),
        ("threshold", {"lower": None}, r": Either lower or upper must be specified"),
        ("threshold", {"lower": 2.0, "upper": 1.0}, r": lower should be smaller than upper"),
        ("patient", {"patience": -1}, r"\.patience: patience cannot be negative"),
        ("patient", {"wrapped_pruner": {"_target_": "os.system"}}, r"\.wrapped_pruner\._target_: 'os\.system' may not"),
        (
            "patient",
            {"wrapped_pruner": {"_target_": "optuna.pruners.MedianPruner", "n_min_trials": 0}},
            r"\.wrapped_pruner\.n_min_trials: Number of trials for pruning must be at least 1",
        ),
        ("none", {"_target_": "optuna.pruners.MedianPrune"}, r"\._target_: 'optuna\.pruners\.MedianPrune' cannot be"),
        ("none", {"_target_": "optuna.samplers.RandomSampler"}, r"\._target_: 'optuna\.samplers\.RandomSampler' may"),
        ("none", {"_target_": "optuna.pruners._filter_study"}, r""),
        ("patient", {"wrapped_pruner": {"n_min_trials": 1}}, r"\.wrapped_pruner: \{'n_min_trials': 1\} names nothing"),
        ("none", {"_target_": 3}, r"\._target_: 3 is not a dotted name"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_key(name: str, changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"^hydra\.sweeper\.pruner{problem}"):
        make_pruner(read(name) | changed)


def test_several_objectives_are_not_pruned() -> None:
    assert isinstance(make_pruner(read("none"), n_objectives=2), optuna.pruners.NopPruner)
    with pytest.raises(ConfigError, match=r"^hydra\.sweeper\.pruner: MedianPruner does not fit 2 directions"):
        make_pruner(read("median"), n_objectives=2)
