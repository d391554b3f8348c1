"""The sweeper's keys, checked and in one form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from project.common.errors import ConfigError

_DIRECTIONS = {"maximize": "maximize", "max": "maximize", "minimize": "minimize", "min": "minimize"}
_LEAST = {"n_trials": 1, "n_jobs": 1, "max_retries": 0, "storage_timeout_s": 0}


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """What `conf/hydra/sweeper/study.yaml` explains.

    Args:
        metrics_are_given: Whether `hydra.sweeper.metrics` names them; else it is the objective.
        directions: `maximize` or `minimize` for each of `metrics`.
    """

    study_name: str
    storage: Any
    storage_timeout_s: float
    sampler: Any
    pruner: Any
    metrics: list[str]
    metrics_are_given: bool
    directions: list[str]
    n_trials: int
    n_jobs: int
    max_failure_rate: float
    max_retries: int
    skip_repeated: bool
    params: dict[str, Any]
    custom_search_space: str | None

    @classmethod
    def read(cls, given: Mapping[str, Any], config: DictConfig) -> "SweepSettings":
        """Reads the keys of `hydra.sweeper`.

        Raises:
            ConfigError: Names all that cannot be.
        """
        plain = {key: _plain(value) for key, value in given.items()}
        metrics = plain["metrics"] or OmegaConf.select(config, "objective.metric") or "value"
        settings = cls(
            study_name=plain["study_name"] or str(config.hydra.job.name),
            metrics=_listed(metrics),
            metrics_are_given=bool(plain["metrics"]),
            directions=[_direction(value) for value in _listed(plain["direction"])],
            params=plain["params"] or {},
            **{
                key: plain[key]
                for key in (
                    *("storage", "storage_timeout_s", "sampler", "pruner", "n_trials", "n_jobs"),
                    *("max_failure_rate", "max_retries", "skip_repeated", "custom_search_space"),
                )
            },
        )
        if problems := list(settings._problems()):
            raise ConfigError(*problems)
        return settings

    def _problems(self) -> list[str]:
        problems = [
            f"hydra.sweeper.{key}: {value!r} will not do; use a number from {least}"
            for key, least in _LEAST.items()
            if isinstance(value := getattr(self, key), bool) or not isinstance(value, int | float) or value < least
        ]
        if not 0 <= self.max_failure_rate <= 1:
            problems.append(f"hydra.sweeper.max_failure_rate: {self.max_failure_rate} is no share; use 0 to 1")
        if not isinstance(self.skip_repeated, bool):
            problems.append(f"hydra.sweeper.skip_repeated: {self.skip_repeated!r} will not do; use true or false")
        if len(self.metrics) != len(self.directions):
            problems.append(
                f"hydra.sweeper.direction: {len(self.directions)} for {len(self.metrics)} metrics "
                f"({', '.join(self.metrics)}); give one for each of hydra.sweeper.metrics"
            )
        return problems


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _direction(value: Any) -> str:
    name = str(getattr(value, "name", value)).lower()
    if name not in _DIRECTIONS:
        raise ConfigError(f"hydra.sweeper.direction: {value!r} is unknown; use {', '.join(_DIRECTIONS)}")
    return _DIRECTIONS[name]
