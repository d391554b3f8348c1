"""A trial of a sweep, in the process that the sweep's launcher started for it."""

from pathlib import Path
from typing import Any

from project.common.config_check import check_light
from project.common.config_recipes import check_managers_of_run
from project.common.config_shape import check_complete
from project.common.errors import ConfigError
from project.common.files.layout import RunLayout
from project.common.files.secrets import remember_secrets
from project.common.managers.metrics import unknown_metric
from project.common.processes import parent_link
from project.common.processes.handover import Handover, own_handover
from project.common.processes.identity import Role, current_identity
from project.training import report
from project.training.trial import carry_out, find_problems


def is_trial() -> bool:
    """Whether this process was started for one trial, and so must not start another tree for it."""
    identity = current_identity()
    return own_handover() is not None and identity is not None and identity.role is Role.TRIAL


def run_as_trial(config: dict[str, Any], *, overrides: list[str]) -> float | list[float]:
    """Checks and runs one configuration in this process; sends the result record up.

    Args:
        config: Resolved, plain.
        overrides: What made it, for the record.

    Returns:
        The values of what the sweep optimises at the checkpoint that is kept; one number for one metric.

    Raises:
        ConfigError: The configuration will not do, or a metric is not logged.
    """
    handover = own_handover()
    assert handover is not None, "this process is a trial"
    remember_secrets(config)
    problems = check_light(config) or check_complete(config) or list(check_managers_of_run(config))
    if problems := problems or find_problems(config):
        raise ConfigError(*problems)
    handover.config = config
    _write_start(handover, overrides)
    result = carry_out(handover)
    parent_link.send("result", result)
    return objectives(config, result)


def objectives(config: dict[str, Any], result: dict[str, Any]) -> float | list[float]:
    """The values of what a sweep optimises, from a run's record; one number for one metric.

    Raises:
        ConfigError: A metric is not logged.
    """
    from hydra.core.hydra_config import HydraConfig

    given = HydraConfig.get().sweeper.get("metrics")
    names = [given] if isinstance(given, str) else list(given or [config["objective"]["metric"]])
    key = "hydra.sweeper.metrics" if given else "objective.metric"
    values = [_value(result["metrics"], name, key=key) for name in names]
    return values[0] if len(values) == 1 else values


def _write_start(handover: Handover, overrides: list[str]) -> None:
    assert handover.identity.run_dir is not None, "a trial has a folder"
    report.write_start(RunLayout(Path(handover.identity.run_dir)), handover.config, overrides)


def _value(found: dict[str, float], metric: str, *, key: str) -> float:
    if metric not in found:
        raise unknown_metric(metric, available=found, key=key)
    return found[metric]
