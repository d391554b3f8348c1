"""All points of a search space, for the sampler that tries each of them once."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from project.common.errors import ConfigError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

    from project.sweeps.search.search_space import SearchSpace

MOST_POINTS = 1_000_000  # Optuna keeps all of them in memory


def grid_of(space: SearchSpace) -> dict[str, list[Any]]:
    """The values of each key.

    Raises:
        ConfigError: A key has no end of values, there are too many points, or a function adds keys.
    """
    if space.custom is not None:
        raise ConfigError(
            f"hydra.sweeper.custom_search_space: the grid must be known before, and '{space.custom}' adds to it; "
            "take another sampler, such as hydra/sweeper/sampler=tpe"
        )
    described = space.as_plain()["searched"]
    grid, problems = {}, []
    for name, distribution in space.distributions.items():
        values = _values(distribution)
        if values is None:
            problems.append(f"{name}: {described[name]} has no end of values for a grid; use a choice or a range")
        else:
            grid[name] = values
    n_points = math.prod(map(len, grid.values()))
    if n_points > MOST_POINTS:
        problems.append(f"hydra.sweeper.sampler: a grid of {n_points:,} points; take another sampler, or fewer values")
    if problems:
        raise ConfigError(*problems)
    return grid


def _values(distribution: BaseDistribution) -> list[Any] | None:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    if isinstance(distribution, IntDistribution):
        return list(range(distribution.low, distribution.high + 1, distribution.step))
    assert isinstance(distribution, FloatDistribution)
    if distribution.step is None:
        return [distribution.low] if distribution.single() else None
    low, high, step = (Decimal(str(number)) for number in (distribution.low, distribution.high, distribution.step))
    return [float(low + index * step) for index in range(int((high - low) / step) + 1)]
