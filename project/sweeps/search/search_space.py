"""What a sweep searches, read from overrides; and one trial's values as overrides, exactly as they were typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from project.common.errors import ConfigError
from project.common.files.secrets import mask_override
from project.common.whitelist import authorize
from project.sweeps.search.distributions import describe, distribution_of
from project.sweeps.search.given_overrides import bare_name, given_overrides
from project.sweeps.search.override_text import as_text, literal

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

_CUSTOM_KEY = "hydra.sweeper.custom_search_space"


@dataclass(frozen=True)
class SearchSpace:
    """What differs between the trials of a sweep, and what does not.

    Args:
        distributions: By override key with its sign (`+new`), in the order given.
        fixed: Overrides that are equal in all trials, as typed.
        structures: The lists and dicts among the choices, by key and by the text that Optuna keeps for them.
        custom: Dotted name of a function (configuration, trial) → None that suggests more; None suggests no more.
    """

    distributions: dict[str, BaseDistribution]
    fixed: tuple[str, ...]
    structures: dict[str, dict[str, Any]] = field(default_factory=dict)
    custom: str | None = None

    def suggest(self, trial: Trial, cfg: Any = None) -> dict[str, Any]:
        """Has the trial's sampler choose a value for each key; returns the trial's parameters.

        Raises:
            ConfigError: The study, or a point that was enqueued, does not fit this search space.
        """
        for name, distribution in self.distributions.items():
            with _refusing(name):
                trial._suggest(name, distribution)
        self.extend(cfg, trial)
        return dict(trial.params)

    def extend(self, cfg: Any, trial: Trial) -> None:
        """Lets `hydra.sweeper.custom_search_space` suggest what only some trials have."""
        if self.custom is None:
            return
        authorize(self.custom, key=_CUSTOM_KEY)(cfg, trial)
        fixed = {bare_name(override): override for override in self.fixed if not override.startswith("~")}
        taken: dict[str, str] = {}
        for name in trial.params:
            bare = bare_name(name)
            if other := fixed.get(bare) or taken.get(bare):
                raise ConfigError(f"{bare}: is searched as '{name}', and is also given as '{other}'; give one of them")
            taken[bare] = name

    def overrides(self, params: Mapping[str, Any]) -> tuple[str, ...]:
        """The overrides of one trial: what is fixed, then one for each parameter.

        Args:
            params: As Optuna keeps them. Names that are not in `distributions` come from `custom_search_space`, and
                their strings arrive as they are, while a choice may hold an interpolation, as on any command line.
        """
        texts = (f"{name}={as_text(self._in_override(name, value))}" for name, value in params.items())
        return (*self.fixed, *texts)

    def typed(self, name: str, stored: Any) -> Any:
        """The value as one would write it in a YAML file: a list where Optuna keeps the text of a list."""
        if isinstance(stored, str):
            return self.structures.get(name, {}).get(stored, stored)
        return stored

    def as_plain(self) -> dict[str, Any]:
        """What `changes` compares, and the study keeps; without secrets."""
        searched = {name: describe(it, self.structures.get(name, {})) for name, it in self.distributions.items()}
        fixed = [mask_override(override) for override in self.fixed]
        return {"searched": searched, "fixed": fixed, "custom": self.custom}

    def _in_override(self, name: str, value: Any) -> Any:
        return self.typed(name, value) if name in self.distributions else literal(value)


def read_search_space(
    params: Mapping[str, Any] | None,
    arguments: Sequence[str],
    *,
    custom_search_space: str | None = None,
    config_loader: Any = None,
) -> SearchSpace:
    """Reads what is searched and what is fixed; of two overrides with the same key the later one counts.

    Args:
        params: `hydra.sweeper.params`: by key an override's text, such as `interval(0, 1)` or a fixed value.
        arguments: The command line's overrides; they come after `params`.
        custom_search_space: Dotted name of a function that suggests more.
        config_loader: Hydra's, which knows the choices that `glob` means; None refuses `glob`.

    Raises:
        ConfigError: Names all keys that cannot be searched, and why.
    """
    if custom_search_space is not None:
        authorize(custom_search_space, key=_CUSTOM_KEY)
    fixed: list[str] = []
    problems: list[str] = []
    distributions, structures = {}, {}
    for override in given_overrides(params or {}, arguments, config_loader):
        if not override.is_sweep_override():
            fixed.append(override.input_line or "")
            continue
        name = override.get_key_element()
        try:
            distributions[name], structures[name] = distribution_of(override)
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(*problems)
    return SearchSpace(distributions, tuple(fixed), structures, custom_search_space)


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One line for each difference between two search spaces, both from `as_plain`."""
    lines = []
    was, now = old["searched"], new["searched"]
    for name in dict.fromkeys((*was, *now)):
        if was.get(name) != now.get(name):
            lines.append(f"{name}: {was.get(name, 'not searched')} → {now.get(name, 'no longer searched')}")
    fixed_was, fixed_now = ({override.partition("=")[0]: override for override in side["fixed"]} for side in (old, new))
    for key in dict.fromkeys((*fixed_was, *fixed_now)):
        if fixed_was.get(key) != fixed_now.get(key):
            lines.append(f"{key}: {fixed_was.get(key, 'not given')} → {fixed_now.get(key, 'not given')}")
    if old["custom"] != new["custom"]:
        lines.append(f"custom_search_space: {old['custom'] or 'none'} → {new['custom'] or 'none'}")
    return lines


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        text = " ".join(str(error).split())
        raise ConfigError(
            f"{name}: does not fit what the study has ({text}); take the search space that the study began with, "
            "or another study name"
        ) from error
