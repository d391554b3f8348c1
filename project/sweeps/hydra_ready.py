"""Hydra with its plugins found: the process server imports this once, since finding them takes each job a while."""

from hydra.core.plugins import Plugins

from project.sweeps import plugins, trial_job  # noqa: F401 - every job needs them

Plugins.instance()
