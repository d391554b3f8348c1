"""Hydra as each job needs it: the process server imports this once, since it would take each job a while."""

from hydra.core.plugins import Plugins
from omegaconf import OmegaConf

from project.sweeps import plugins  # noqa: F401 - every job needs them
from project.sweeps.jobs import trial_job  # noqa: F401 - every job needs them
from project.training import launch  # noqa: F401 - likewise

Plugins.instance()
# The parser of interpolations learns its grammar as it reads: from these, what configurations are made of.
OmegaConf.to_container(
    OmegaConf.create({"a": {"b": 1}, "c": ["${a.b}", "${.0}", "x/${a.b}", "${oc.env:HOME,null}", "${a.b}/${..a.b}"]}),
    resolve=True,
)
