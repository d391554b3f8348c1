"""Structures keep their kinds, and the original stays as it was."""

from collections import OrderedDict, UserDict, defaultdict
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from project.common.devices.nested import map_leaves


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Frozen:
    value: Any
    derived: Any = field(init=False, default=1)


def doubled(value: Any) -> Any:
    return map_leaves(value, lambda number: 2 * number, is_leaf=lambda part: isinstance(part, int))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 2),
        ({"a": [1, (2,)], "b": "text"}, {"a": [2, (4,)], "b": "text"}),
        (Pair(1, None), Pair(2, None)),
        (OrderedDict(b=1, a=2), OrderedDict(b=2, a=4)),
        (UserDict({"a": 1}), UserDict({"a": 2})),
        (MappingProxyType({"a": 1}), MappingProxyType({"a": 2})),
        ([], []),
        (Pair, Pair),
    ],
)
def test_maps_leaves_and_keeps_kinds(value: Any, expected: Any) -> None:
    result = doubled(value)

    assert result == expected
    assert type(result) is type(value)


def test_goes_into_dataclasses_also_frozen_ones_with_derived_fields() -> None:
    result = doubled(Frozen([1]))

    assert (result.value, result.derived) == ([2], 2)


def test_keeps_what_a_constructor_would_not_take() -> None:
    result = doubled(defaultdict(list, a=1))

    assert result["new"] == []
    assert result["a"] == 2


def test_leaves_the_original_alone() -> None:
    value = {"a": [1], "b": UserDict({"c": 1}), "d": Frozen(1)}
    doubled(value)

    assert value == {"a": [1], "b": UserDict({"c": 1}), "d": Frozen(1)}
