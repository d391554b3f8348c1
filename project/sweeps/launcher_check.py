"""Sees, before any job, that a launcher's processes may start processes, whichever sweeper asks for it."""

import functools

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from project.common.errors import ConfigError
from project.common.told_exit import told_by_exit
from project.training.job import DAEMONIC


def check_launchers() -> None:
    """For every launcher that Hydra builds in this process from now on; the same when done twice.

    Each job could say so itself, but a pool whose jobs are all refused in its own processes may wait for ever.
    """
    instantiate = Plugins.instantiate_launcher
    if hasattr(instantiate, "__wrapped__"):
        return

    @functools.wraps(instantiate)
    def checked(
        self: Plugins, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> Launcher:
        with told_by_exit():
            refuse_daemonic(config)
        return instantiate(self, hydra_context, task_function, config)

    Plugins.instantiate_launcher = checked  # type: ignore[method-assign]


def refuse_daemonic(config: DictConfig) -> None:
    """Raises ConfigError for joblib's launcher with a pool of the standard library, whose processes may start none."""
    if OmegaConf.select(config, "hydra.launcher.backend") == "multiprocessing":
        raise ConfigError(DAEMONIC)
