"""Applies a function to what lies inside nested structures, and keeps their kinds."""

import copy
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import fields, is_dataclass
from typing import Any


def map_leaves(value: Any, function: Callable[[Any], Any], *, is_leaf: Callable[[Any], bool]) -> Any:
    """A structure like `value` in which `function` was applied to each leaf; anything else in it is kept as it is.

    Goes into mappings, lists, tuples, named tuples and dataclasses. `value` itself is not changed.
    """

    def walk(part: Any) -> Any:
        if is_leaf(part):
            return function(part)
        if isinstance(part, Mapping):
            return _like_mapping(part, {key: walk(item) for key, item in part.items()})
        if isinstance(part, tuple) and hasattr(part, "_fields"):
            return type(part)(*map(walk, part))
        if isinstance(part, list | tuple):
            return type(part)(walk(item) for item in part)
        if is_dataclass(part) and not isinstance(part, type):
            return _like_dataclass(part, {field.name: walk(getattr(part, field.name)) for field in fields(part)})
        return part

    return walk(value)


def _like_mapping(part: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if type(part) is dict:
        return items
    if not isinstance(part, MutableMapping):
        return type(part)(items)  # type: ignore[call-arg] # read-only mappings are built from a dict
    made = copy.copy(part)  # keeps what a constructor may not take, such as the factory of a defaultdict
    for key, item in items.items():
        made[key] = item
    return made


def _like_dataclass(part: Any, values: dict[str, Any]) -> Any:
    made = copy.copy(part)  # `replace` would refuse fields that the constructor does not take
    for name, item in values.items():
        object.__setattr__(made, name, item)  # frozen ones too
    return made
