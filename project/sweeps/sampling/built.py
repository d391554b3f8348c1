"""Builds what a sweep's configuration names: samplers and pruners, with their keys in every refusal."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from project.common.errors import ConfigError
from project.common.plain_config import as_plain
from project.common.signatures import misfits
from project.common.whitelist import allowed_patterns, authorize, find_targets, instantiate, refuse_harmful

_EXTRAS = {"CmaEsSampler": "cmaes"}  # what needs a package that is not always there, and the extra that brings it

# Arguments that must be built, which their annotations do not decide.
_NODES = ("wrapped_pruner", "base_sampler", "independent_sampler", "crossover", "mutation", "constraints_func")


def build(node: Mapping[str, Any] | None, *, key: str, allow: Sequence[str]) -> Any:
    """Returns what the node at `key` describes.

    Raises:
        ConfigError: A target may not be called, an argument is unknown or does not fit; names its key.
    """
    node = check(node, key=key, allow=allow)
    try:
        return _built(node, allow)
    except ConfigError:
        raise
    except Exception as error:  # constructors of other libraries refuse in their own ways
        text = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{key}{_to_blame(node, allow, text)}: {text}") from error


def check(node: Mapping[str, Any] | None, *, key: str, allow: Sequence[str]) -> dict[str, Any]:
    """Returns the node as plain data, if what it names may be called and takes such arguments; builds nothing."""
    node = as_plain(node or {})
    if "_target_" not in node:
        group = key.replace(".", "/")
        raise ConfigError(f"{key}: names nothing to build; choose one by {group}=…, or give it a _target_")
    patterns = (*allowed_patterns(), *allow)
    try:
        refuse_harmful(node, patterns=patterns)
    except ConfigError as error:
        raise ConfigError(*(f"{key}.{problem}" for problem in error.problems)) from error
    problems: list[str] = []
    for place, target in find_targets(node):
        full_key = f"{key}.{place}".rstrip(".")
        found = authorize(target, key=f"{full_key}._target_", patterns=patterns)
        extra = _EXTRAS.get(target.rpartition(".")[2])
        if extra is not None and find_spec(extra) is None:
            problems.append(f"{full_key}: needs the package {extra}; `make extras EXTRAS={extra}` installs it")
        problems += misfits(full_key, found, _at(node, place), given_later=())
        problems += _unbuilt(full_key, _at(node, place))
    if problems:
        raise ConfigError(*problems)
    return node


def _unbuilt(key: str, node: Mapping[str, Any]) -> list[str]:
    given = {name: node[name] for name in _NODES if node.get(name) is not None}
    return [
        f"{key}.{name}: {value!r} names nothing to build; give it a _target_, or null"
        for name, value in given.items()
        if not (isinstance(value, Mapping) and "_target_" in value)
    ]


def _built(node: Mapping[str, Any], allow: Sequence[str]) -> Any:
    from optuna.exceptions import ExperimentalWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # who names it in a configuration wants it
        return instantiate(node, allow=allow)


def _to_blame(node: Mapping[str, Any], allow: Sequence[str], text: str) -> str:
    """The innermost argument without which it could be built, or else the one that the error speaks of."""
    arguments = list(_arguments(node))
    culprits = [argument for argument in arguments if _builds_without(node, argument, allow)]
    innermost = max((len(place) for place, _ in culprits), default=0)
    culprits = [argument for argument in culprits if len(argument[0]) == innermost]
    culprits = culprits or [argument for argument in arguments if argument[1].lower() in text.lower()]
    return ".".join(("", *filter(None, culprits[0]))) if len(culprits) == 1 else ""


def _builds_without(node: Mapping[str, Any], argument: tuple[str, str], allow: Sequence[str]) -> bool:
    place, name = argument
    without = as_plain(node)
    del _at(without, place)[name]
    try:
        _built(without, allow)
    except Exception:  # noqa: BLE001 - so it is not this argument, or not this one alone
        return False
    return True


def _arguments(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for place, _ in find_targets(node):
        for name in _at(node, place):
            if not name.startswith("_"):
                yield place, name


def _at(node: Any, place: str) -> Any:
    for part in filter(None, place.split(".")):
        node = node[int(part)] if isinstance(node, list) else node[part]
    return node
