"""What a DataLoader's worker runs first. Nothing heavy is imported here: every worker imports this module."""

from project.common.devices.shared_memory import apply_sharing
from project.common.managers.process_init import ensure_process_initialized
from project.common.process_registry import set_state
from project.common.processes.handover import handed_config
from project.common.processes.identity import current_identity
from project.training.rng import seed_process


def start_worker(worker: int) -> None:
    """Gives the worker its managers and a seed of its own.

    Lightning sets its own function only where there is none; that one would import all of Lightning in every worker.
    """
    config = handed_config()
    if config is not None:
        # Whoever sends a tensor decides how it is shared.
        apply_sharing((config["managers"].get("tensor") or {}).get("sharing_strategy", "auto"))
        ensure_process_initialized(config)
    identity = current_identity()
    rank = (identity.rank if identity else 0) or 0
    seed_process((config or {}).get("seed") or 0, rank, worker)
    set_state("loading")
