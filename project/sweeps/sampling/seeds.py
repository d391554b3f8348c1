"""Random states that depend on the seed and the trial's number alone: no point comes twice when a sweep goes on."""

from collections.abc import Iterator, Mapping
from typing import Any

from project.common.errors import ConfigError

_LARGEST = 2**32 - 1  # of numpy's older random states


class Reseeder:
    """Gives each trial its own random numbers, whichever process samples it and after however many others.

    A sampler that was seeded once would draw the same points again in each process and after each start.

    Args:
        sampler: An Optuna sampler; the states of samplers within it count, too.
        node: Its configuration; without a seed in it nothing happens.
    """

    def __init__(self, sampler: Any, node: Mapping[str, Any]) -> None:
        self._seeds = list(_find_seeds(node))
        self._sampler = sampler
        self._states = list(_find_states(sampler, set())) if self._seeds else []

    def reseed(self, number: int) -> None:
        """Before the trial with this number is sampled."""
        from numpy.random import SeedSequence

        for index, state in enumerate(self._states):
            state.rng.seed(SeedSequence([*self._seeds, number, index]).generate_state(4))
        for name in ("_gprs_cache_list", "_constraints_gprs_cache_list"):
            if self._seeds and hasattr(self._sampler, name):
                setattr(self._sampler, name, None)  # a fit that starts from the last one depends on what came before


def check_seeds(node: Mapping[str, Any], *, key: str) -> None:
    """Refuses seeds that numpy's random states do not take."""
    for seed in _find_seeds(node):
        if not 0 <= seed <= _LARGEST:
            raise ConfigError(f"{key}.seed: {seed} does not fit; use a whole number from 0 to {_LARGEST}, or null")


def _find_seeds(value: Any) -> Iterator[int]:
    if isinstance(value, Mapping):
        if isinstance(seed := value.get("seed"), int):
            yield seed
        for child in value.values():
            yield from _find_seeds(child)
    elif isinstance(value, list):
        for child in value:
            yield from _find_seeds(child)


def _find_states(value: Any, seen: set[int]) -> Iterator[Any]:
    """Optuna's random states below an object, each once and always in the same order."""
    from optuna.samplers import BaseSampler
    from optuna.samplers._lazy_random_state import LazyRandomState

    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, LazyRandomState):
        yield value
    elif isinstance(value, BaseSampler) or type(value).__module__.startswith("optuna.samplers."):
        for child in getattr(value, "__dict__", {}).values():
            yield from _find_states(child, seen)
