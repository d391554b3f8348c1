"""The ranks of a trial with several devices: one process each, watched together until all have ended."""

import os
from typing import Any

from project.common import process_registry
from project.common.config_surroundings import wished_threads
from project.common.errors import ChildFailedError, PrunedError
from project.common.processes import parent_link, process_entry, stop
from project.common.processes.child import Child, start_child
from project.common.processes.handover import Handover, own_handover
from project.common.processes.identity import Identity, Role, current_identity
from project.common.processes.outcome import Status, refusal_in
from project.common.processes.parent_link import process_messages
from project.common.processes.supervision import Supervisor


def run_rank_process() -> None:
    """Entry of a rank below a trial; rank 0 sends the result record up."""
    handover = own_handover()
    assert handover is not None
    from project.training.rank import run_rank

    process_entry.limit_threads(handover.threads)  # torch, imported only now, caps what the environment says
    result = run_rank(handover.config)
    if handover.identity.rank == 0:
        parent_link.send("result", result)


def threads_per_rank(config: dict[str, Any], world_size: int, *, n_parallel: int = 1) -> int:
    """Compute threads of one rank: what the configuration or OMP_NUM_THREADS says, or else its share of the cores.

    The share leaves each of its workers one. In a sweep `n_parallel` trials share the cores.
    """
    threads = config["processes"]["threads"]
    if threads != "auto":
        return int(threads)
    wished = wished_threads()
    if wished.isdecimal() and int(wished):
        return int(wished)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // (n_parallel * world_size) - config["loader"]["num_workers"])


def n_parallel(handover: Handover) -> int:
    """How many trials may run at once on this machine, this one counted."""
    return handover.sweep.n_parallel if handover.sweep is not None else 1


class Ranks:
    """The ranks of one trial, watched until all have ended."""

    def __init__(self, handover: Handover, world_size: int) -> None:
        self._handover, self._world_size = handover, world_size
        self._result: dict[str, Any] | None = None

    def run(self) -> dict[str, Any]:
        """Starts the ranks and returns rank 0's result record."""
        identity = current_identity()
        assert identity is not None
        process_registry.set_state("supervising")
        children: list[Child] = []
        for rank in range(self._world_size):
            stop.raise_if_stop_requested()
            children.append(self._start(identity.child(role=Role.RANK, rank=rank, world_size=self._world_size)))
        process_messages.relay("verdict", children[0].send)
        supervisor = Supervisor(children, on_message=self._on_message)
        supervisor.run()
        self._raise_failure(supervisor)
        assert self._result is not None, "rank 0 ended without an error, so it sent its result"
        return self._result

    def _start(self, identity: Identity) -> Child:
        config = self._handover.config
        return start_child(
            run_rank_process,
            Handover(
                identity=identity,
                config=config,
                environ=dict(os.environ),
                start_method=self._handover.start_method,
                threads=threads_per_rank(
                    self._handover.config, self._world_size, n_parallel=n_parallel(self._handover)
                ),
                deadline_s=self._handover.deadline_s,
                sweep=self._handover.sweep,
            ),
        )

    def _on_message(self, child: Child, kind: str, data: Any) -> None:
        if kind == "result":
            self._result = data
        else:
            parent_link.send(kind, data)

    def _raise_failure(self, supervisor: Supervisor) -> None:
        stop.raise_if_stop_requested()
        failed = the_cause(supervisor)
        if failed is None:
            return
        if failed.outcome is not None and failed.outcome.status is Status.INTERRUPTED:
            raise stop.StopRequested(
                stop.StopRequest(reason=failed.how_it_ended(), exit_code=failed.outcome.exit_code, deadline=0.0)
            )
        if failed.outcome is not None and failed.outcome.status is Status.PRUNED:
            raise PrunedError(failed.outcome.cause or "pruned")
        raise refusal_in(failed.outcome) or ChildFailedError(failed.how_it_ended())


def the_cause(supervisor: Supervisor) -> Child | None:
    """The rank that the others ended for; None when all is well. The first to end need not be it.

    Those that agreed to stop name another's request; those that lost their peer fail after it, and may be quicker to
    close. A rank that was killed cannot be anybody's consequence, unless it was us.
    """
    first = supervisor.first_failure
    if first is None:
        return first
    if first.outcome is not None and first.outcome.status is Status.INTERRUPTED:
        return next((child for child in supervisor.children if _was_asked_to_stop(child)), first)
    pruned = [child for child in supervisor.children if child.outcome and child.outcome.status is Status.PRUNED]
    if pruned:  # those that lost it as a peer fail, and may be quicker to close
        return pruned[0]
    if first.outcome is None:
        return first
    killed = [child for child in supervisor.children if child.outcome is None and not child.was_killed]
    crashed = [child for child in supervisor.children if child.outcome and child.outcome.status is Status.CRASHED]
    return min(killed or crashed or [first], key=_left_work_at)


def _was_asked_to_stop(child: Child) -> bool:
    outcome = child.outcome
    return outcome is not None and outcome.status is Status.INTERRUPTED and stop.PASSED_ON not in (outcome.cause or "")


def _left_work_at(child: Child) -> float:
    """Seconds since the epoch at which it began to close."""
    run_dir, pid = child.identity.run_dir, child.process.pid
    record = process_registry.find_record(run_dir, pid) if run_dir is not None and pid is not None else None
    history = record.history if record is not None else []
    return next((when for state, when in history if state == "closing"), float("inf"))
