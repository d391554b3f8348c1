"""What runs in a trial process: it is rank 0 itself with one device, and starts and watches ranks with several."""

import logging
import os
from typing import Any

from project.common import process_registry
from project.common.data.data_check import check_files
from project.common.errors import ConfigError
from project.common.managers import get_cuda_manager, get_directory_manager
from project.common.managers.process_init import ensure_process_initialized
from project.common.processes import parent_link, process_entry
from project.common.processes.handover import QUIET_WAITING, Handover, own_handover, set_handover, thread_variables_kept
from project.common.processes.identity import Identity, Role, set_identity
from project.training.ranks import Ranks, n_parallel, threads_per_rank

log = logging.getLogger(__name__)


def check_config() -> None:
    """Entry of the short-lived process that checks what needs torch or the devices; sends the problems up."""
    handover = own_handover()
    assert handover is not None
    parent_link.send("problems", find_problems(handover.config))


def find_problems(config: dict[str, Any]) -> list[str]:
    """What is wrong with targets, data files, space and devices; not for main, since it imports every target."""
    from project.common.config_check import check_heavy

    return check_heavy(config) or _check_data(config) or _check_machine(config)


def _check_data(config: dict[str, Any]) -> list[str]:
    settings = config["managers"].get("data")
    return check_files(settings) if settings and config["task"]["run"] is None else []


def _check_machine(config: dict[str, Any]) -> list[str]:
    if not config["managers"].get("cuda"):
        return []
    ensure_process_initialized(config)
    space = get_directory_manager().check()
    if not space.ok:
        return [f"managers.directory.min_free_mb: {space.reason}; free some, or give another paths.runs_dir"]
    try:
        get_cuda_manager().n_devices(config["trainer"]["devices"])
    except ConfigError as error:
        return list(error.problems)
    return []


def run_trial() -> None:
    """Entry of a trial process; sends the result record up."""
    handover = own_handover()
    assert handover is not None
    parent_link.send("result", carry_out(handover))


def carry_out(handover: Handover) -> dict[str, Any]:
    """Runs the trial that this process is, as rank 0 itself or with ranks below it; returns the result record."""
    ensure_process_initialized(handover.config)
    world_size = get_cuda_manager().n_devices(handover.config["trainer"]["devices"])
    if world_size == 1:
        return _as_rank(handover.config, handover.identity, world_size=1)
    return Ranks(handover, world_size).run()


def run_inline(config: dict[str, Any], identity: Identity) -> dict[str, Any]:
    """Runs the trial in the calling process, as rank 0 of 1, so that breakpoints and notebooks work."""
    from project.common.managers import cleanup_managers

    set_handover(Handover(identity=identity, config=config, start_method="spawn"))
    _import_torch_quietly()
    try:
        with thread_variables_kept():  # what a rank is told is not the user's wish for the next run
            return _as_rank(config, identity, world_size=1)
    finally:
        cleanup_managers()
        set_handover(None)


def _import_torch_quietly() -> None:
    """Waiting threads sleep, as in every process of a tree; the calling process keeps its environment."""
    added = {name: value for name, value in QUIET_WAITING.items() if name not in os.environ}
    os.environ.update(added)
    import torch  # noqa: F401 - its OpenMP reads the environment once

    for name in added:
        del os.environ[name]


def _as_rank(config: dict[str, Any], identity: Identity, *, world_size: int) -> dict[str, Any]:
    from project.common.managers import cleanup_managers
    from project.training.rank import run_rank

    cleanup_managers()  # what was built as a trial is built anew as a rank
    identity = identity.child(role=Role.RANK, rank=0, world_size=world_size)
    handover = own_handover()
    assert handover is not None
    handover.identity = identity
    set_identity(identity)
    set_handover(handover)
    process_registry.update_identity(identity)
    process_entry.set_title(identity)
    process_entry.limit_threads(threads_per_rank(config, world_size, n_parallel=n_parallel(handover)))
    return run_rank(config)
