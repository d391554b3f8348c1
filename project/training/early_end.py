"""Whether a trial ends early, as each of its ranks learns of it."""

from project.common.processes import stop
from project.common.processes.handover import own_sweep
from project.common.processes.identity import current_identity
from project.common.processes.outcome import is_pruned

PEER_WAIT_S = 1.0


def ended_early(error: BaseException) -> bool:
    """Whether `error` says that the trial was pruned.

    Where user code in another rank said so, this one has lost its peer in the middle of a step; the trial, which knows
    why, is about to tell it.
    """
    if is_pruned(error):
        return True
    identity = current_identity()
    if own_sweep() is None or identity is None or identity.world_size == 1:
        return False
    stop.sleep(PEER_WAIT_S)
    request = stop.stop_request()
    return request is not None and request.reason.startswith(stop.PEER_PRUNED)
