"""What runs in a trial process: it is rank 0 itself with one device, and starts and watches ranks with several."""

import logging
import os
from typing import Any

from project.common import process_registry
from project.common.data.data_check import check_files
from project.common.errors import ChildFailedError, ConfigError
from project.common.managers import get_cuda_manager, get_directory_manager
from project.common.managers.process_init import ensure_process_initialized
from project.common.processes import parent_link, process_entry, stop
from project.common.processes.child import Child, start_child
from project.common.processes.handover import QUIET_WAITING, Handover, own_handover, set_handover, thread_variables_kept
from project.common.processes.identity import Identity, Role, current_identity, set_identity
from project.common.processes.outcome import Status, refusal_in
from project.common.processes.supervision import Supervisor

log = logging.getLogger(__name__)


def check_config() -> None:
    """Entry of the short-lived process that checks what needs torch or the devices; sends the problems up."""
    from project.common.config_check import check_heavy

    handover = own_handover()
    assert handover is not None
    config = handover.config
    parent_link.send("problems", check_heavy(config) or _check_data(config) or _check_machine(config))


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
    ensure_process_initialized(handover.config)
    world_size = get_cuda_manager().n_devices(handover.config["trainer"]["devices"])
    if world_size == 1:
        result = _as_rank(handover.config, handover.identity, world_size=1)
    else:
        result = _Ranks(handover, world_size).run()
    parent_link.send("result", result)


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


def run_rank_process() -> None:
    """Entry of a rank below a trial; rank 0 sends the result record up."""
    handover = own_handover()
    assert handover is not None
    from project.training.rank import run_rank

    process_entry.limit_threads(handover.threads)  # torch, imported only now, caps what the environment says
    result = run_rank(handover.config)
    if handover.identity.rank == 0:
        parent_link.send("result", result)


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
    process_entry.limit_threads(threads_per_rank(config, world_size))
    return run_rank(config)


def threads_per_rank(config: dict[str, Any], world_size: int) -> int:
    """Compute threads of one rank: what the configuration or OMP_NUM_THREADS says, or else its share of the cores.

    The share leaves each of its workers one.
    """
    threads = config["processes"]["threads"]
    if threads != "auto":
        return int(threads)
    wished = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list goes by levels of nesting
    if wished.isdecimal() and int(wished):
        return int(wished)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // world_size - config["loader"]["num_workers"])


class _Ranks:
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
        supervisor = Supervisor(children, on_message=self._on_message)
        supervisor.run()
        self._raise_failure(supervisor)
        assert self._result is not None, "rank 0 ended without an error, so it sent its result"
        return self._result

    def _start(self, identity: Identity) -> Child:
        return start_child(
            run_rank_process,
            Handover(
                identity=identity,
                config=self._handover.config,
                environ=dict(os.environ),
                start_method=self._handover.start_method,
                threads=threads_per_rank(self._handover.config, self._world_size),
                deadline_s=self._handover.deadline_s,
            ),
        )

    def _on_message(self, child: Child, kind: str, data: Any) -> None:
        if kind == "result":
            self._result = data

    def _raise_failure(self, supervisor: Supervisor) -> None:
        stop.raise_if_stop_requested()
        failed = the_cause(supervisor)
        if failed is None:
            return
        if failed.outcome is not None and failed.outcome.status is Status.INTERRUPTED:
            raise stop.StopRequested(
                stop.StopRequest(reason=failed.how_it_ended(), exit_code=failed.outcome.exit_code, deadline=0.0)
            )
        raise refusal_in(failed.outcome) or ChildFailedError(failed.how_it_ended())


def the_cause(supervisor: Supervisor) -> Child | None:
    """The rank that the others ended for; None when all is well. The first to end need not be it.

    Those that agreed to stop name another's request; those that lost their peer fail after it, and may be quicker to
    close. A rank that was killed cannot be anybody's consequence, unless it was us.
    """
    first = supervisor.first_failure
    if first is None or first.outcome is None:
        return first
    if first.outcome.status is Status.INTERRUPTED:
        return next((child for child in supervisor.children if _was_asked_to_stop(child)), first)
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
