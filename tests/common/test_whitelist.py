"""A configuration calls what was allowed, and nothing else, wherever the configuration comes from."""

import functools
import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.utils import execution_whitelist
from omegaconf import OmegaConf

import project.tasks
from project.common import managers
from project.common.errors import ConfigError
from project.common.whitelist import (
    ALLOW_VARIABLE,
    allowed_patterns,
    authorize,
    find_harmful,
    find_targets,
    instantiate,
    refuse_harmful,
)
from tests.helpers import managers as doubles
from tests.helpers.targets import HARMFUL, USEFUL


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Importing these sets environment variables, which would be laid to the first test that needs them."""
    for name in ("lightning.pytorch", "transformers", "datasets", "torchmetrics"):
        importlib.import_module(name)


@pytest.fixture
def allow_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_VARIABLE, doubles.ALLOWED)


def hide(target: str, *, place: str) -> dict[str, Any]:
    """Returns a configuration with a target somewhere in it."""
    node: dict[str, Any] = {"_target_": target}
    places = {
        "callback": {"callbacks": {"x": node}},
        "manager": {"managers": {"x": node}},
        "in a manager": {"managers": {"model": {"_target_": "project.tasks.x", "model": {"layers": [[node]]}}}},
        "in an argument": {"task": {"optimizer": {"_target_": "torch.optim.AdamW", "params": {"a": [node]}}}},
    }
    return places[place]


@pytest.mark.parametrize("target", HARMFUL)
def test_a_harmful_target_is_refused_by_instantiate(target: str) -> None:
    with pytest.raises(ConfigError, match="_target_"):
        instantiate({"_target_": target})


@pytest.mark.parametrize("target", HARMFUL)
def test_a_harmful_target_within_an_allowed_node_is_refused(target: str) -> None:
    with pytest.raises(ConfigError, match="_target_"):
        instantiate({"_target_": "torch.nn.Sequential", "_args_": [{"_target_": target}]})


@pytest.mark.parametrize("target", USEFUL)
def test_a_useful_target_is_allowed(target: str) -> None:
    assert callable(authorize(target))


@pytest.mark.parametrize("place", ["callback", "manager", "in a manager", "in an argument"])
@pytest.mark.parametrize("target", HARMFUL[:31])
def test_a_harmful_target_is_found_by_its_name_anywhere(target: str, place: str) -> None:
    problems = find_harmful(hide(target, place=place))

    assert any(f"'{target}' may not be called" in problem for problem in problems) or "__" in target


@pytest.mark.parametrize("target", ["os.system", "torch.hub.load", "subprocess.Popen"])
def test_somebody_elses_run_folder_is_refused(target: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(hide(target, place="callback")))

    with pytest.raises(ConfigError, match=rf"callbacks\.x\._target_: '{target}'"):
        managers.initialize_factory(OmegaConf.load(file))  # type: ignore[arg-type]


@pytest.mark.parametrize("target", ["os.system", "torch.hub.load", "subprocess.Popen"])
def test_a_checkpoints_configuration_is_refused(target: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    file = tmp_path / "last.ckpt"
    torch.save({"config": hide(target, place="in a manager")}, file)

    with pytest.raises(ConfigError, match=target):
        refuse_harmful(torch.load(file, weights_only=True)["config"])


@pytest.mark.parametrize("target", ["os.system", "torch.hub.load", "subprocess.Popen"])
def test_a_command_line_override_is_refused(target: str) -> None:
    config = OmegaConf.merge({"callbacks": {}}, OmegaConf.from_dotlist([f"callbacks.x._target_={target}"]))

    with pytest.raises(ConfigError, match=rf"callbacks\.x\._target_: '{target}'"):
        managers.initialize_factory(config)  # type: ignore[arg-type]


def test_a_target_behind_an_interpolation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = OmegaConf.create({"user": {"a": "os.system"}, "callbacks": {"x": {"_target_": "${user.a}"}}})

    with pytest.raises(ConfigError, match=r"callbacks\.x\._target_: 'os\.system'"):
        managers.initialize_factory(config)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"processes": {"allow": ["os.*"]}}, "processes.allow: a configuration cannot allow targets"),
        ({"task": {"_execution_whitelist_": ["os.*"]}}, "task._execution_whitelist_: a configuration cannot allow"),
        ({"task": {"model": {"trust_remote_code": True}}}, "task.model.trust_remote_code: code from a hub would run"),
        ({"task": {"model": {"trust_remote_code": "yes"}}}, "task.model.trust_remote_code: code from a hub would run"),
        (
            {"managers": {"model": {"weights_only": False}}},
            "managers.model.weights_only: a checkpoint could run any code",
        ),
        (
            {"task": {"model": {"_target_": ["os", "system"]}}},
            "task.model._target_: ['os', 'system'] is not a dotted name",
        ),
    ],
)
def test_other_ways_to_run_code_are_refused(config: dict[str, Any], problem: str) -> None:
    (found,) = find_harmful(config)

    assert found.startswith(problem)


@pytest.mark.parametrize("target", ["os.system", "${user.a}"])
def test_lists_of_omegaconf_hide_nothing(target: str) -> None:
    config = OmegaConf.create({"user": {"a": "os.popen"}, "callbacks": [[{"_target_": target}]]})

    assert len(find_harmful(config)) == 1  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"callbacks\.0\.0\._target_"):
        refuse_harmful({"x": 1, **config})  # type: ignore[dict-item]


def test_what_is_off_is_not_refused() -> None:
    assert find_harmful({"a": {"trust_remote_code": False, "weights_only": True}, "processes": {"allow": []}}) == []


def test_a_wider_list_around_us_does_not_widen_ours() -> None:
    with execution_whitelist("os.*"), pytest.raises(ConfigError, match=r"os\.getcwd"):
        instantiate({"_target_": "os.getcwd"})


def test_the_users_own_module_is_allowed_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    node = doubles.node("ground", depth=2)
    with pytest.raises(ConfigError, match=f"add it to ALLOW in {project.__name__}/tasks/__init__"):
        instantiate(node)
    monkeypatch.setattr(project.tasks, "ALLOW", (doubles.ALLOWED,))

    assert instantiate(node).depth == 2


def test_an_allowed_module_allows_nothing_that_it_imports(allow_doubles: None) -> None:
    with pytest.raises(ConfigError, match=r"leads to time\.sleep"):
        instantiate({"_target_": "tests.helpers.managers.time.sleep", "_args_": [0]})


def test_a_name_that_is_allowed_in_full_may_be_a_reexport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_VARIABLE, "collections.OrderedDict, json.JSONDecoder")

    assert {"collections.OrderedDict", "json.JSONDecoder"} <= set(allowed_patterns())
    assert instantiate({"_target_": "json.JSONDecoder"}).decode("[1]") == [1]


def test_a_metaclass_makes_no_class(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError):
        instantiate({"_target_": "torch.nn.parameter._ParameterMeta", "_args_": ["X", [], {}]})


def test_a_missing_target_says_what_python_said(allow_doubles: None) -> None:
    with pytest.raises(ConfigError, match=r"'tests\.helpers\.nowhere\.X' cannot be imported \(ModuleNotFoundError"):
        instantiate({"_target_": "tests.helpers.nowhere.X"})


def test_nested_nodes_are_built_and_plain_values_arrive_plain(allow_doubles: None) -> None:
    house = instantiate(
        {**doubles.node("house"), "ground": doubles.node("ground", depth=5), "rooms": ["hall"], "garden": {"a": [1]}}
    )

    assert (house.ground.depth, house.rooms, house.garden) == (5, ["hall"], {"a": [1]})
    assert (type(house.rooms), type(house.garden)) == (list, dict)


def test_a_partial_is_called_with_live_objects(allow_doubles: None) -> None:
    ground = doubles.Ground()
    make = instantiate(OmegaConf.create(doubles.node("house", _partial_=True)))

    assert isinstance(make, functools.partial)
    assert make(ground=ground).ground is ground


def test_optimizers_and_schedules_are_built_from_their_nodes() -> None:
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = instantiate({"_target_": "torch.optim.AdamW", "lr": 0.1, "_partial_": True})([weight])
    schedule = instantiate(
        {"_target_": "transformers.get_constant_schedule_with_warmup", "num_warmup_steps": 2, "_partial_": True}
    )(optimizer)

    assert schedule.get_last_lr() == [0.0]


def test_an_allowed_function_may_return_what_is_not_allowed_itself(allow_doubles: None) -> None:
    """Hydra refuses callables of other libraries, such as a model that a function of the user's has loaded."""
    made = instantiate({"_target_": "tests.helpers.managers.make_foreign", "_partial_": True})()

    assert made("a") == "a"
    assert instantiate({"_target_": "tests.helpers.managers.make_foreign"})("b") == "b"


def test_targets_are_found_with_their_keys() -> None:
    config = {"a": {"_target_": "x.y", "b": [{"_target_": "z"}]}}

    assert list(find_targets(config)) == [("a", "x.y"), ("a.b.0", "z")]
