"""Samplers of a sweep: what `hydra.sweeper.sampler` names, with points that never repeat when the sweep goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optuna.samplers import BaseSampler, GridSampler

from project.common.errors import ConfigError
from project.common.whitelist import find_targets
from project.sweeps.sampling.built import build, check
from project.sweeps.sampling.child_sampler import ChildSampler
from project.sweeps.sampling.grid import grid_of
from project.sweeps.sampling.seeds import Reseeder, check_seeds

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from project.sweeps.search.search_space import SearchSpace

_KEY = "hydra.sweeper.sampler"
_ALLOW = ("hydra_plugins.hydra_optuna_sweeper.*", "optuna.samplers.*")
_IMPORT_TORCH = frozenset({"GPSampler"})


class SweepSampler(BaseSampler):
    """An Optuna sampler, reseeded for each trial by its number.

    Args:
        sampler: What samples.
        node: Its configuration.
    """

    def __init__(self, sampler: BaseSampler, node: Mapping[str, Any]) -> None:
        self.sampler = sampler
        self._reseeder = Reseeder(sampler, node)

    @property
    def name(self) -> str:
        """For people: the class of what samples."""
        return self.sampler.name if isinstance(self.sampler, ChildSampler) else type(self.sampler).__name__

    def close(self) -> None:
        """Ends the process in which it samples, if there is one."""
        if isinstance(self.sampler, ChildSampler):
            self.sampler.close()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._reseeder.reseed(trial.number)
        self.sampler.before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self.sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self.sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: Any, values: Sequence[float] | None) -> None:
        if not isinstance(self.sampler, GridSampler):  # it would only stop a loop of Optuna's own, which we have not
            self.sampler.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        self.sampler.reseed_rng()


def make_sampler(
    node: Mapping[str, Any] | None, *, space: SearchSpace, start_method: str | None = None
) -> SweepSampler:
    """Builds `hydra.sweeper.sampler`; its user closes it.

    Args:
        node: The configuration.
        space: What is searched; a grid consists of its points.
        start_method: Of a process for a sampler that imports torch; `spawn`, or None for the process server's.

    Raises:
        ConfigError: It names something that may not be called, is not there, or takes no such arguments.
    """
    node = check(node, key=_KEY, allow=_ALLOW)
    check_seeds(node, key=_KEY)
    if any(target.rpartition(".")[2] in _IMPORT_TORCH for _, target in find_targets(node)):
        return SweepSampler(ChildSampler(node, allow=_ALLOW, start_method=start_method), node)
    sampler = build(node, key=_KEY, allow=_ALLOW)
    if getattr(sampler, "func", None) is GridSampler:  # waits for its points, as in hydra-optuna-sweeper
        sampler = sampler(grid_of(space))
    if not isinstance(sampler, BaseSampler):
        raise ConfigError(f"{_KEY}: '{node.get('_target_')}' makes no sampler of Optuna, but {type(sampler).__name__}")
    return SweepSampler(sampler, node)


def close_sampler(sampler: BaseSampler) -> None:
    """Ends the process in which it samples, if there is one."""
    if isinstance(sampler, SweepSampler):
        sampler.close()


def n_grid_points(sampler: BaseSampler) -> int | None:
    """How many points there are; None when there is no end of them."""
    inner = sampler.sampler if isinstance(sampler, SweepSampler) else sampler
    return len(inner._all_grids) if isinstance(inner, GridSampler) else None
