"""A configuration as plain data."""

from typing import Any

import pytest
from omegaconf import OmegaConf

from project.common.errors import ConfigError
from project.common.plain_config import as_plain, differences


def test_a_dictconfig_becomes_plain_and_is_resolved() -> None:
    config = OmegaConf.create({"seed": 3, "data": {"seed": "${seed}", "files": ["a"]}})

    plain = as_plain(config)  # type: ignore[arg-type]

    assert plain == {"seed": 3, "data": {"seed": 3, "files": ["a"]}}
    assert type(plain["data"]) is dict
    assert type(plain["data"]["files"]) is list


def test_a_node_is_resolved_against_its_whole() -> None:
    config = OmegaConf.create({"seed": 3, "data": {"seed": "${seed}"}})

    assert as_plain({"x": config.data}) == {"x": {"seed": 3}}


def test_the_copy_is_nobody_elses() -> None:
    config: dict[str, Any] = {"a": {"b": [1]}}
    plain = as_plain(config)
    config["a"]["b"].append(2)

    assert plain == {"a": {"b": [1]}}


def test_what_has_no_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match="config: list has no keys; use a dict or a DictConfig"):
        as_plain([1])  # type: ignore[arg-type]


def test_differences_are_named_by_key() -> None:
    one = {"a": {"b": 1, "c": 2}, "d": [1]}
    other = {"a": {"b": 1, "c": 3, "e": 4}, "d": [1]}

    assert list(differences(one, other)) == ["a.c: 2, not 3", "a.e: absent, not 4"]
    assert list(differences(one, one)) == []
