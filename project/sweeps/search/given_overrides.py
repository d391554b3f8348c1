"""The overrides that a sweep was given, by its configuration and the command line, without contradictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from project.common.errors import ConfigError
from project.sweeps.search.null_choices import allow_null_choices
from project.sweeps.search.override_text import as_text

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_SIGNS = "+~"


def bare_name(text: str) -> str:
    """The key of an override without its sign."""
    return text.partition("=")[0].lstrip(_SIGNS)


def given_overrides(params: Mapping[str, Any], arguments: Sequence[str], config_loader: Any) -> list[Override]:
    """Parses both and lets the later one count where they contradict each other.

    Raises:
        ConfigError: Names all that cannot be parsed, and keys that are both searched and fixed for all that.
    """
    texts = {f"hydra.sweeper.params.{key}": f"{key}={_value_text(value)}" for key, value in params.items()}
    texts |= {f"override {n}": text for n, text in enumerate(arguments, start=1)}
    overrides, problems = _parse(texts, config_loader)
    overrides = _settle(overrides)
    problems += _given_twice(overrides)
    if problems:
        raise ConfigError(*problems)
    return overrides


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else as_text(value)


def _parse(texts: Mapping[str, str], config_loader: Any) -> tuple[list[Override], list[str]]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    allow_null_choices()
    parser = OverridesParser.create(config_loader=config_loader)
    overrides, problems = [], []
    for place, text in texts.items():
        try:
            overrides += parser.parse_overrides([text])
        except HydraException as error:
            # The first line counts the overrides, and the last one is an address.
            what = " ".join(" ".join(str(error).splitlines()[1:-1]).split())
            problems.append(f"{place}: '{text}' is no override that Hydra can read: {what}")
    return overrides, problems


def _settle(overrides: Sequence[Override]) -> list[Override]:
    """An override takes the place of the earlier ones with its key, and their sign if it has none."""
    settled: list[Override] = []
    for override in overrides:
        replaced = [earlier for earlier in settled if _replaces(override, earlier)]
        settled = [earlier for earlier in settled if not any(earlier is other for other in replaced)]
        signed = [earlier for earlier in replaced if earlier.is_add() or earlier.is_force_add()]
        if override.is_delete() and any(earlier.is_add() for earlier in replaced):
            continue  # neither added nor deleted
        settled.append(_with_sign_of(signed[-1], override) if signed else override)
    return settled


def _replaces(later: Override, earlier: Override) -> bool:
    if bare_name(later.get_key_element()) != bare_name(earlier.get_key_element()) or earlier.is_delete():
        return False
    if earlier.is_sweep_override():
        return not later.is_list_extend()
    # Hydra merges fixed dicts, extends fixed lists, and deletes what was added, one after the other.
    return not (later.is_delete() or later.is_list_extend() or isinstance(later.value(), dict))


def _with_sign_of(earlier: Override, later: Override) -> Override:
    if later.get_key_element() != bare_name(later.get_key_element()) or later.is_delete():
        return later
    sign = "++" if earlier.is_force_add() else "+"
    return replace(later, type=earlier.type, input_line=f"{sign}{later.input_line}")


def _given_twice(overrides: Sequence[Override]) -> list[str]:
    fixed = {bare_name(o.get_key_element()): o for o in overrides if not (o.is_sweep_override() or o.is_delete())}
    searched = [override for override in overrides if override.is_sweep_override()]
    return [
        f"{name}: is searched ('{override.input_line}') and extended ('{fixed[name].input_line}'); give one of them"
        for override in searched
        if (name := bare_name(override.get_key_element())) in fixed
    ]
