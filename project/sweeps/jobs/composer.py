"""The configuration of each trial, as Hydra composes it, and much quicker from the second trial on.

Composing takes Hydra a tenth of a second or more, since it reads all files again. What files and groups make of a
configuration depends on the overrides up to the last one that is not a plain `key=value`; it is kept, and the values
that follow are set in a copy, as Hydra itself would set them.
"""

import pickle
from collections.abc import Sequence

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict

_MOST_KEPT = 64  # choices of groups that a sweep goes through


class Composer:
    """Composes the configurations of one sweep.

    Args:
        loader: Hydra's.
        master: The sweep's own configuration.
    """

    def __init__(self, loader: ConfigLoader, master: DictConfig) -> None:
        self._loader, self._master = loader, master
        self._parser = OverridesParser.create()
        self._bases: dict[tuple[str, ...], bytes] = {}
        self._is_group: dict[str, bool] = {}

    def compose(self, overrides: Sequence[str], *, number: int) -> DictConfig:
        """The configuration of job `number`, with Hydra's own node.

        Raises:
            HydraException: As Hydra does for these overrides.
        """
        config = self._from_base(list(overrides))
        if config is None:
            config = self._loader.load_sweep_config(self._master, list(overrides))
        with open_dict(config):
            config.hydra.job.id = str(number)
            config.hydra.job.num = number
        return config

    def _from_base(self, overrides: list[str]) -> DictConfig | None:
        """None when Hydra must do it, also to say what is wrong."""
        parsed = self._parser.parse_overrides(overrides)
        n_base = max((i + 1 for i, override in enumerate(parsed) if not self._is_plain(override)), default=0)
        base = tuple(overrides[:n_base])
        if base not in self._bases:
            if len(self._bases) >= _MOST_KEPT:
                self._bases.clear()
            self._bases[base] = pickle.dumps(self._loader.load_sweep_config(self._master, list(base)))
        config = pickle.loads(self._bases[base])
        assert isinstance(config, DictConfig)
        try:
            for override in parsed[n_base:]:
                OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
        except Exception:  # noqa: BLE001 - Hydra meets the same error and says it in its own words
            return None
        config.hydra.overrides.task.extend(overrides[n_base:])
        return config

    def _is_plain(self, override: Override) -> bool:
        """Whether it changes the value of a key, and nothing else."""
        key = override.key_or_group
        if override.type is None or override.type.name != "CHANGE" or override.package is not None:
            return False
        if override.is_hydra_override() or key.startswith("hydra") or override.is_sweep_override():
            return False
        if key not in self._is_group:
            self._is_group[key] = bool(self._loader.get_group_options(key, None))
        return not self._is_group[key]
