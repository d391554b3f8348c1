"""What can be found wrong with a search space before there is a study: keys and choices that no trial could compose."""

from collections.abc import Callable, Iterator
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException
from optuna.distributions import BaseDistribution, CategoricalDistribution

from project.common.errors import ConfigError
from project.sweeps.search.given_overrides import bare_name
from project.sweeps.search.search_space import SearchSpace

Compose = Callable[[tuple[str, ...]], Any]


def rehearse(space: SearchSpace, *, compose: Compose, loader: ConfigLoader) -> None:
    """Composes one point of the space, and one more for each choice of a group that Hydra does not list.

    Args:
        space: What is searched; what `custom_search_space` adds is not known before a trial.
        compose: As for a trial, from its overrides.
        loader: Hydra's, which knows the groups.

    Raises:
        ConfigError: Names what Hydra does not find.
    """
    problems: dict[str, None] = {}
    for point in _points(space, loader):
        try:
            compose(space.overrides(point))
        except HydraException as error:
            problems[" ".join(str(error).split())] = None
    if problems:
        raise ConfigError(*problems)


def _points(space: SearchSpace, loader: ConfigLoader) -> Iterator[dict[str, Any]]:
    first = {name: _first(distribution) for name, distribution in space.distributions.items()}
    yield first
    for name, distribution in space.distributions.items():
        group = bare_name(name).partition("@")[0]
        options = loader.get_group_options(group, None) if isinstance(distribution, CategoricalDistribution) else []
        if options:
            unlisted = [it for it in distribution.choices[1:] if it is not None and it not in options]
            yield from (first | {name: choice} for choice in unlisted)


def _first(distribution: BaseDistribution) -> Any:
    return distribution.choices[0] if isinstance(distribution, CategoricalDistribution) else distribution.low
