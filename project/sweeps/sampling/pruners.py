"""Pruners of a sweep: what `hydra.sweeper.pruner` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from project.common.errors import ConfigError
from project.sweeps.sampling.built import build

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

_KEY = "hydra.sweeper.pruner"
_ALLOW = ("optuna.pruners.*",)


def make_pruner(node: Mapping[str, Any] | None, *, n_objectives: int = 1) -> BasePruner:
    """Builds `hydra.sweeper.pruner`.

    Args:
        node: The configuration; null prunes nothing.
        n_objectives: How many directions the study has.

    Raises:
        ConfigError: It names something that may not be called or takes no such arguments, or there are more objectives
            than one, which Optuna does not prune.
    """
    from optuna.pruners import BasePruner, NopPruner

    if node is None:
        return NopPruner()
    pruner = build(node, key=_KEY, allow=_ALLOW)
    if not isinstance(pruner, BasePruner):
        raise ConfigError(f"{_KEY}: '{node.get('_target_')}' makes no pruner of Optuna, but {type(pruner).__name__}")
    if n_objectives > 1 and not isinstance(pruner, NopPruner):
        raise ConfigError(
            f"{_KEY}: {type(pruner).__name__} does not fit {n_objectives} directions, since Optuna prunes by one "
            "objective only; use hydra/sweeper/pruner=none, or one direction"
        )
    return pruner
