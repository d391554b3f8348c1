"""What Optuna may choose for one override: the distribution, and the lists and dicts that it keeps as texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from project.common.errors import ConfigError
from project.sweeps.search.override_text import as_text

if TYPE_CHECKING:
    from hydra.core.override_parser.types import IntervalSweep, Override
    from optuna.distributions import BaseDistribution

_MISSING = "???"
_ABSENT = object()


def distribution_of(override: Override) -> tuple[BaseDistribution, dict[str, Any]]:
    """Returns the distribution of a sweep, and its lists and dicts by the texts that stand for them among the choices.

    Intervals and ranges are as in hydra-optuna-sweeper. Its choices are not: it keeps the quotes of a quoted string in
    `x='a','b'`, turns null into the word, and shuffles anew in each process, which a study refuses when it goes on.

    Raises:
        ConfigError: Optuna cannot search this.
    """
    from hydra.core.override_parser.types import IntervalSweep, RangeSweep
    from hydra.errors import HydraException

    name, sweep = override.get_key_element(), override.value()
    try:
        if isinstance(sweep, IntervalSweep):
            return _interval(override, sweep), {}
        if isinstance(sweep, RangeSweep) and not (sweep.shuffle or sweep.transformers):
            return _as_upstream(override), {}
        return _choices(_elements(override))
    except (ValueError, AssertionError, NotImplementedError, HydraException) as error:
        text = " ".join(str(error).split())
        raise ConfigError(f"{name}: '{override.input_line}' cannot be searched: {text}") from error


def describe(distribution: BaseDistribution, structures: Mapping[str, Any]) -> str:
    """A distribution as one would type it."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if isinstance(distribution, CategoricalDistribution):
        typed = (
            structures.get(choice, choice) if isinstance(choice, str) else choice for choice in distribution.choices
        )
        return f"choice({', '.join(map(as_text, typed))})"
    low, high, step = distribution.low, distribution.high, distribution.step
    is_float = isinstance(distribution, FloatDistribution)
    if step is not None and (is_float or step != 1):
        beyond = Decimal(str(high)) + Decimal(str(step))  # Hydra's ranges end before their stop
        return f"range({as_text(low)}, {as_text(type(high)(beyond))}, {as_text(step)})"
    interval = f"interval({as_text(low)}, {as_text(high)})"
    interval = f"tag(log, {interval})" if distribution.log else interval
    return interval if is_float else f"int({interval})"


def _interval(override: Override, sweep: IntervalSweep) -> BaseDistribution:
    unknown = sorted(sweep.tags - {"log"})
    if unknown:
        raise ValueError(f"the tag {', '.join(unknown)} means nothing; the only one is log")
    if sweep.start is None or sweep.end is None or not math.isfinite(sweep.start) or not math.isfinite(sweep.end):
        raise ValueError("both ends must be finite numbers")
    return _as_upstream(override)


def _as_upstream(override: Override) -> BaseDistribution:
    from hydra_plugins.hydra_optuna_sweeper._impl import create_optuna_distribution_from_override

    return create_optuna_distribution_from_override(override)


def _elements(override: Override) -> Iterable[Any]:
    from hydra.core.override_parser.types import ChoiceSweep, RangeSweep

    sweep = override.value()
    if isinstance(sweep, ChoiceSweep):
        return sweep.list
    if isinstance(sweep, RangeSweep):
        return sweep  # in its order, whatever `shuffle` says: the sampler chooses by itself
    return override.sweep_iterator()


def _choices(elements: Iterable[Any]) -> tuple[BaseDistribution, dict[str, Any]]:
    from hydra.core.override_parser.types import Override
    from optuna.distributions import CategoricalDistribution

    kept: dict[str, Any] = {}  # by what tells True from 1; the same choice twice is one
    structures: dict[str, Any] = {}
    for element in elements:
        value: Any = Override._convert_value(element)
        if value == _MISSING:
            raise ValueError(f"'{_MISSING}' stands for a missing value")
        is_structure = isinstance(value, list | dict)
        stored = as_text(value) if is_structure else value
        if is_structure:
            structures[stored] = value
        exactly = f"{type(value).__name__} {stored!r}"
        twin = next((other for key, other in kept.items() if other == stored and key != exactly), _ABSENT)
        if twin is not _ABSENT:
            raise ValueError(
                f"Optuna cannot tell the choices {twin!r} and {value!r} apart, which are equal; leave one out"
            )
        kept.setdefault(exactly, stored)
    if not kept:
        raise ValueError("there is nothing to choose from")
    return CategoricalDistribution(list(kept.values())), structures
