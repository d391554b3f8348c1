"""Every file under conf: what it says of itself, that it composes, and that what it names takes what it is given."""

import functools
import inspect
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from project.common.config_check import check_heavy, check_light
from project.common.manager_graph import ManagerGraph
from tests.helpers import training

CONF = training.ROOT / "conf"
compose = functools.cache(training.compose)  # tests read it only
FILES = sorted(path for path in CONF.rglob("*.yaml") if "local" not in path.parts)
# Hydra's own groups do not show in a job's configuration: tests/sweeps builds what they describe.
OF_HYDRA = [path for path in FILES if path.is_relative_to(CONF / "hydra")]
CHOICES = [path.relative_to(CONF).with_suffix("") for path in FILES if path.parent != CONF and path not in OF_HYDRA]
# Groups that add to a whole configuration instead of being one of its parts.
ADDED = ("experiment", "search", "task/scheduler")
# What a choice cannot know by itself.
GIVEN = {"managers/tokenizer/pretrained": ("managers.tokenizer.pretrained=folder",)}
MANAGERS = ("directory", "cuda", "tensor", "tokenizer", "data", "batch", "model", "amp", "metrics", "wandb")


def overrides_of(choice: Path) -> list[str]:
    """The command line that takes this choice."""
    group = choice.parent.as_posix()
    sign = "+" if group in ADDED else ""
    return [f"{sign}{group}={choice.name}", *GIVEN.get(choice.as_posix(), ())]


def ids(choice: Path) -> str:
    return choice.as_posix()


def test_no_file_is_overlooked() -> None:
    found = Counter(path.relative_to(CONF).parent.as_posix() for path in FILES)

    managers = {f"managers/{name}": count for name, count in zip(MANAGERS, (1, 3, 1, 2, 1, 3, 4, 4, 2, 4), strict=True)}
    assert {group: found[group] for group in managers} == managers
    assert found["."] == 1
    assert {"task", "loader", "trainer", "callbacks", "logger", "paths", "processes", "experiment", "debug"} <= {*found}
    assert len(CHOICES) == len(FILES) - len(OF_HYDRA) - 1 >= 51


@pytest.mark.parametrize("choice", CHOICES, ids=ids)
def test_every_choice_composes_and_fits_what_it_names(choice: Path) -> None:
    config = compose(*overrides_of(choice))

    assert check_light(config) == []
    assert check_heavy(config) == []


def described(path: Path) -> str:
    lines = path.read_text().splitlines()
    return lines[1] if lines[0].startswith("# @package") else lines[0]


def test_every_file_begins_with_what_it_is_and_its_command() -> None:
    wrong = [described(path) for path in FILES if not re.match(r"# \S.*[.?] python train.py \S", described(path))]

    assert wrong == []


@pytest.mark.parametrize("choice", CHOICES, ids=ids)
def test_the_command_of_every_file_works(choice: Path) -> None:
    command = described(CONF / f"{choice}.yaml").partition("python train.py ")[2]
    arguments = [argument for argument in shlex.split(command) if argument != "-m"]

    assert compose(*arguments)["name"]


@pytest.mark.parametrize("name", MANAGERS)
def test_a_managers_default_names_every_parameter_once(name: str) -> None:
    path = CONF / "managers" / name / "default.yaml"
    node = yaml.safe_load(path.read_text())
    parameters = inspect.signature(ManagerGraph.read(compose()).nodes[name].cls).parameters
    keys = re.findall(r"^(\w+):", path.read_text(), re.MULTILINE)

    assert Counter(keys) == Counter(dict.fromkeys(node, 1))
    assert {key for key in keys if not key.startswith("_")} == parameters.keys() - ({*MANAGERS} - {name})


@pytest.mark.parametrize("name", MANAGERS)
def test_the_roles_of_a_manager_are_those_that_its_class_names(name: str) -> None:
    config = compose()
    shown = config["processes"]["roles"]

    assert list(shown) == list(config["managers"])
    assert {*shown[name]} == {str(role) for role in ManagerGraph.read(config).nodes[name].cls.roles}  # type: ignore[attr-defined]


def test_every_value_of_a_default_is_explained() -> None:
    """The other choices state the difference only, so this is where a reader looks."""
    lines = [
        line
        for path in FILES
        if path.stem == "default" and "debug" not in path.parts
        for line in path.read_text().splitlines()
        if re.match(r"\s*\w+: \S", line) and not re.match(r"\s*(_target_|_recursive_|defaults): ", line)
    ]

    assert len(lines) > 60
    assert [line for line in lines if "#" not in line and not _says_all(line)] == []


def _says_all(line: str) -> bool:
    """Limits that stand below one another, and what is taken from elsewhere under its own name, are explained there."""
    return bool(re.match(r"\s*(limit_\w+_batches|tags): |\s*\w+: (\[[\w, ]+\]|[$][{])", line))


def leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def test_every_key_can_be_given_on_the_command_line() -> None:
    keys = list(leaves(compose()))
    config = compose(*(f"{key}=7" for key in keys))

    assert len(keys) > 120
    assert {value_at(config, key) for key in keys} == {7}


def value_at(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = config[name]
    return config


def test_debug_wins_over_an_experiment() -> None:
    config = compose("+experiment=language_id_ddp", "debug=default")

    assert config["trainer"]["devices"] == 1
    assert config["loader"]["num_workers"] == 0
    assert config["processes"]["inline"] is True


def test_a_model_can_be_replaced_by_another_from_the_command_line() -> None:
    node = "{_target_: project.tasks.models.classifier_from_config, model_type: bert, hidden_size: 64}"

    config = compose("~task.model", f"+task.model={node}")

    assert list(config["task"]["model"]) == ["_target_", "model_type", "hidden_size"]
    assert config["managers"]["model"]["model"] == config["task"]["model"]
    assert check_heavy(config) == []
