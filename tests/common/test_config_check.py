"""All problems of a configuration at once, each with its key, what was found and what would do."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from project.common.config_check import TOP_LEVEL_KEYS, check_light
from project.common.config_shape import check_complete
from project.common.errors import ConfigError
from project.common.whitelist import ALLOW_VARIABLE
from tests.helpers import managers as doubles
from tests.helpers.managers import config_of, node


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_VARIABLE, doubles.ALLOWED)


def light(**sections: Any) -> list[str]:
    return check_light({"managers": {"ground": node("ground")}, **sections})


def with_house(**arguments: Any) -> list[str]:
    return check_light(config_of("ground", "house", house=arguments))


def test_a_good_configuration_has_no_problems() -> None:
    assert check_light(good_config()) == []


def good_config() -> dict[str, Any]:
    return {
        "name": "x",
        "seed": 1,
        "tags": ["a"],
        "resume": "auto",
        "ckpt_path": None,
        "objective": {"metric": "val/acc", "mode": "max"},
        "processes": {"start_method": "spawn", "deadline_s": 10, "threads": "auto", "roles": {"roof": ["rank"]}},
        "trainer": {"devices": "auto", "max_epochs": 3, "max_steps": -1, "gradient_clip_val": None},
        "loader": {"batch_size": 8, "num_workers": 0},
        "user": {"width": 3},
        **config_of("roof", "house", "ground", house={"colour": "red", "rooms": ["hall"]}),
    }


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"trianer": {}}, "trianer: is no key of this configuration; did you mean 'trainer'?"),
        (
            {"processes": {"deadlin_s": 3}},
            "processes.deadlin_s: is no setting of processes; did you mean 'deadline_s'?",
        ),
        ({"name": "???"}, "name: has no value; give it one, name=…"),
        ({"user": {"a": [{"b": "???"}]}}, "user.a.0.b: has no value; give it one"),
        (
            {"processes": {"start_method": "fork"}},
            "processes.start_method: 'fork' copies locks, threads and CUDA's state",
        ),
        (
            {"processes": {"start_method": "forc"}},
            "processes.start_method: 'forc' is no start method; use auto, forkserver",
        ),
        ({"processes": {"deadline_s": -1}}, "processes.deadline_s: -1 does not fit; use a number, at least 1"),
        (
            {"processes": {"threads": 0}},
            "processes.threads: 0 does not fit; use a whole number or auto, at least 1",
        ),
        (
            {"processes": {"max_restarts": 1.5}},
            "processes.max_restarts: 1.5 does not fit; use a whole number, at least 0",
        ),
        (
            {"processes": {"roles": {"hose": ["rank"]}}},
            "processes.roles.hose: there is no manager of this name; there is",
        ),
        (
            {"processes": {"roles": {"ground": ["rnk"]}}},
            "processes.roles.ground: there is no role 'rnk'; did you mean 'rank'",
        ),
        ({"processes": {"allow": ["os.*"]}}, "processes.allow: a configuration cannot allow targets"),
        (
            {"trainer": {"devices": -2}},
            "trainer.devices: -2 does not fit; use a whole number or a list of whole numbers",
        ),
        ({"trainer": {"devices": "two"}}, "trainer.devices: 'two' does not fit"),
        ({"trainer": {"num_nodes": 0}}, "trainer.num_nodes: 0 does not fit; use a whole number, at least 1"),
        ({"loader": {"batch_size": -8}}, "loader.batch_size: -8 does not fit; use a whole number or null, at least 1"),
        ({"loader": {"batch_size": "8"}}, "loader.batch_size: '8' does not fit"),
        ({"loader": {"num_workers": -1}}, "loader.num_workers: -1 does not fit"),
        ({"seed": True}, "seed: True does not fit; use a whole number"),
        ({"objective": {"mode": "maximum"}}, "objective.mode: 'maximum' is neither; use min or max"),
        ({"resume": None}, "resume: None does not fit; use auto, never or a run's folder"),
        ({"resume": "/no/such/run"}, "resume: there is no folder '/no/such/run'; use auto, never or a run's folder"),
        ({"ckpt_path": "/no/such.ckpt"}, "ckpt_path: there is no file '/no/such.ckpt'; give a checkpoint, or null"),
        ({"callbacks": {"x": {"_target_": "os.system"}}}, "callbacks.x._target_: 'os.system' may not be called"),
        ({"trainer": 5}, "trainer: 5 does not fit; use keys with values, as conf/trainer/ has them"),
        ({"processes": None}, "processes: None does not fit; use keys with values"),
        ({"callbacks": {"x": 5}}, "callbacks.x: 5 does not fit; give it a _target_, or null to leave it out"),
        ({"logger": ["csv"]}, "logger: ['csv'] does not fit; use names with a _target_ each, or logger=none"),
        ({"processes": {"roles": "all"}}, "processes.roles: 'all' does not fit; use managers' names with a list"),
        ({"processes": {"roles": {"ground": 3}}}, "processes.roles.ground: 3 does not fit; use a list of roles"),
        (
            {"processes": {"deadline_s": float("nan")}},
            "processes.deadline_s: nan does not fit; use a number",
        ),
        (
            {"loader": {"num_workers": "auto"}},
            "loader.num_workers: 'auto' does not fit; use a whole number",
        ),
        ({"loader": {"num_workers_eval": None}}, "loader.num_workers_eval: None does not fit; use a whole number"),
        (
            {"loader": {"num_workers": 5000}},
            "loader.num_workers: 5000 does not fit; use a whole number, at least 0",
        ),
        ({"trainer": {"devices": 10**6}}, "trainer.devices: 1000000 does not fit; use a whole number or a list"),
        ({"processes": {"threads": 10**6}}, "processes.threads: 1000000 does not fit; use a whole number"),
        ({"seed": 2**32}, "seed: 4294967296 does not fit; use a whole number, at least 0 and at most 4294967295"),
        ({"paths": {"runs_dir": ""}}, "paths.runs_dir: '' does not fit; use text"),
        ({"objective": {"mode": ["max"]}}, "objective.mode: ['max'] is neither; use min or max"),
        ({"resume": "a" * 5000}, "resume: there is no folder 'aaa"),
        ({"ckpt_path": "a" * 5000}, "ckpt_path: there is no file 'aaa"),
        ({"trainer": {"precision": 16}}, "trainer.precision: is decided by managers.amp.dtype; remove it"),
        ({"trainer": {"logger": True}}, "trainer.logger: is decided by the group logger; remove it"),
    ],
)
def test_a_problem_is_named_with_its_key_and_what_would_do(sections: dict[str, Any], problem: str) -> None:
    (found,) = light(**sections)

    assert found.startswith(problem)


@pytest.mark.parametrize("value", [None, True, 1, float("nan"), "x", "", [], [[1]], {}, {1: 2}, {"_target_": []}])
@pytest.mark.parametrize("key", [*TOP_LEVEL_KEYS, "processes.roles", "trainer.devices", "managers.ground"])
def test_no_value_of_any_kind_is_more_than_a_check_can_bear(key: str, value: Any) -> None:
    """A section that was no section ended in a traceback of the check itself."""
    config = good_config()
    above, _, name = key.rpartition(".")
    (config[above] if above else config)[name] = value

    assert all(isinstance(problem, str) for problem in check_light(config))


def test_each_key_that_a_run_reads_is_missed() -> None:
    """Without one the run made its folder and crashed with a KeyError."""
    assert "loader.timeout_s: is missing; give it a value, as conf/loader does" in check_complete(good_config())
    assert "task: is missing; give it, as conf/config.yaml does" in check_complete(good_config())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"color": "red"}, "managers.house.color: House takes no 'color'; did you mean 'colour'?"),
        ({"colour": "blue"}, "managers.house.colour: 'blue' does not fit; use white or red"),
        ({"rooms": "hall"}, "managers.house.rooms: 'hall' does not fit; use a list of text or null"),
        ({"rooms": [1]}, "managers.house.rooms: [1] does not fit; use a list of text or null"),
        ({"garden": ["tree"]}, "managers.house.garden: ['tree'] does not fit; use keys with values or null"),
        ({"colour": "???"}, "managers.house.colour: has no value; give it one"),
    ],
)
def test_a_managers_argument_that_does_not_fit_is_named(arguments: dict[str, Any], problem: str) -> None:
    (found,) = with_house(**arguments)

    assert found.startswith(problem)


@pytest.mark.parametrize("rooms", [None, [], ["hall", "attic"]])
def test_a_managers_argument_that_fits_is_no_problem(rooms: list[str] | None) -> None:
    assert with_house(rooms=rooms) == []


@pytest.mark.parametrize(
    ("managers", "problem"),
    [
        ({"x": {"depth": 1}}, "managers.x._target_: missing; give the manager's class"),
        ({"x": {"_target_": "os.system"}}, "managers.x._target_: 'os.system' may not be called from a configuration"),
        (
            {"x": {"_target_": "tests.helpers.managers.Nothing"}},
            "managers.x._target_: 'tests.helpers.managers.Nothing' cannot",
        ),
        (
            {"x": {"_target_": "tests.helpers.managers.node"}},
            "managers.x._target_: tests.helpers.managers.node is no manager",
        ),
        ({"hen": node("hen"), "egg": node("egg")}, "managers need each other in a circle: egg -> hen -> egg"),
        ({"house": node("house")}, "managers.house.ground: missing; House needs it"),
    ],
)
def test_a_graph_that_cannot_be_built_is_named(managers: dict[str, Any], problem: str) -> None:
    (found,) = check_light({"managers": managers})

    assert found.startswith(problem)


def test_a_misspelt_manager_is_told_what_there_is() -> None:
    (found,) = check_light({"managers": {"ground": node("ground"), "grund": {"depth": 2}}})

    assert found.endswith("did you mean 'ground'? there is ground")


def test_a_need_that_a_role_has_not_is_named() -> None:
    config = config_of("roof", "house", "ground") | {"processes": {"roles": {"roof": ["rank", "main"]}}}

    (found,) = check_light(config)

    assert found.startswith("processes.roles.roof: includes main, where its need 'house' is not; leave main out")


def test_all_problems_are_reported_together_and_each_once() -> None:
    config = config_of("ground", ground={"depth": "deep"})
    config |= {"trianer": {}, "seed": -1, "callbacks": {"x": {"_target_": "os.system"}}}

    problems = check_light(config)

    assert [problem.partition(":")[0] for problem in problems] == [
        "trianer",
        "callbacks.x._target_",
        "seed",
        "managers.ground.depth",
    ]
    assert str(ConfigError(*problems)).splitlines() == problems


def test_a_reference_to_nothing_is_named() -> None:
    (found,) = check_light(OmegaConf.create({"name": "${taks.name}"}))  # type: ignore[arg-type]

    assert found.startswith("name: Interpolation key 'taks.name' not found; correct the reference")


def test_a_command_may_have_keys_of_its_own() -> None:
    assert check_light({"ckpt": "x"}, extra_keys=["ckpt"]) == []


def test_folders_and_files_that_exist_are_no_problem(tmp_path: Path) -> None:
    checkpoint = tmp_path / "last.ckpt"
    checkpoint.touch()

    assert light(resume=str(tmp_path), ckpt_path=str(checkpoint)) == []


def test_the_light_check_imports_nothing_heavy() -> None:
    """Main never imports torch; so neither may what reads the managers' signatures."""
    script = f"""
import sys
from project.common.config_check import check_light
config = {good_config()!r} | {{"callbacks": {{"x": {{"_target_": "lightning.pytorch.callbacks.ModelCheckpoint"}}}}}}
for name in ("directory", "cuda", "model", "metrics", "wandb"):
    cls = {{"cuda": "CUDA"}}.get(name, name.capitalize())
    config["managers"][name] = {{"_target_": f"project.common.managers.{{name}}.{{cls}}Manager"}}
heavy = {{"torch", "lightning", "transformers", "wandb"}}
print(len(check_light(config)), sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    n_problems, _, heavy = done.stdout.strip().partition(" ")
    assert int(n_problems) > 0  # required arguments are missing: the signatures were read
    assert heavy == "[]"
