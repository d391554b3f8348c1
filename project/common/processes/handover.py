"""What a process was given by the one that started it: an identity, the configuration, the environment. Plain data."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from project.common.files.secrets import remember_secrets
from project.common.processes import mp_internals
from project.common.processes.identity import Identity, Role
from project.common.processes.user_children import Inheritance


@dataclass(frozen=True, kw_only=True)
class SweepInfo:
    """What a trial's processes know of the sweep they belong to. The trial's number is in their identity.

    Args:
        study: The study's name.
        n_parallel: How many trials may run at once; they share the cores.
        params: The values that were sampled for this trial, by override key.
        prunes: Whether each reported value is answered: go on, or prune.
        metrics: What the sweep optimises, as `hydra.sweeper.metrics` names it; empty: the objective.
    """

    study: str
    n_parallel: int = 1
    params: dict[str, Any] = field(default_factory=dict)
    prunes: bool = False
    metrics: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Handover:
    """Everything of ours that crosses into a child.

    Args:
        identity: Who the child is.
        config: The resolved configuration, plain data.
        environ: The child's whole environment; None keeps what it has.
        mark: The mark of the tree (`project.common.processes.strays`); set by `ManagedProcess.start`.
        start_method: `forkserver` or `spawn`, for the processes that the child starts in turn.
        threads: Compute threads the child may use; None leaves the library's default.
        deadline_s: Seconds between a request to stop and the kill.
        sweep: The sweep that a trial and what is below it belong to; None outside a sweep.
        control: The child's end of the supervision pipe; None for DataLoader workers.
        starter_pid: Who started the child; set by `ManagedProcess.start`.
        from_main_thread: Whether its starter's main thread started it; the kernel binds a child to a *thread*.
    """

    identity: Identity
    config: dict[str, Any] = field(default_factory=dict)
    environ: dict[str, str] | None = None
    mark: str | None = None
    start_method: str = "spawn"
    threads: int | None = None
    deadline_s: float = 10.0
    sweep: SweepInfo | None = None
    control: Connection | None = None
    starter_pid: int = 0
    from_main_thread: bool = True


_own: Handover | None = None
# OpenMP's threads spin while they wait for each other. With more processes than cores that made a training of 9 s take
# 110 s; asleep they cost nothing. Read when torch is imported, so the server and every child have it from the start.
QUIET_WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}
# How many threads numpy, BLAS and OpenMP start; read when they are imported.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

# What imports in the process server set in its environment; every forked child keeps it, as if it had imported itself.
set_by_imports: dict[str, str] = {}


@contextmanager
def thread_variables_kept() -> Iterator[None]:
    """Afterwards the environment says of threads what it said before."""
    before = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    try:
        yield
    finally:
        for name in THREAD_VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(before)


def process_environ() -> dict[str, str]:
    """The environment for a process of the tree: this process's own, and waiting threads that sleep unless it says."""
    return QUIET_WAITING | os.environ


def own_handover() -> Handover | None:
    """What this process was given, or None when it was not started by `ManagedProcess`."""
    return _own


def set_handover(handover: Handover | None) -> None:
    """Notes what this process was given, and leaves the identity for children that user code starts."""
    global _own
    _own = handover
    if handover is not None:
        remember_secrets(handover.config)
    share_identity(None if handover is None else handover.identity)


def handed_config() -> dict[str, Any] | None:
    """The configuration that this process was given."""
    return _own.config if _own else None


def own_sweep() -> SweepInfo | None:
    """The sweep that this process belongs to, if it does."""
    return _own.sweep if _own else None


def share_identity(identity: Identity | None) -> None:
    """Lets any `multiprocessing` child of this process know below whom it is, also one started by user code.

    Args:
        identity: This process's; None when it is nobody any more.
    """
    mp_internals.hand_to_children(Inheritance(identity.as_dict()) if identity is not None else None)


def inherited_identity() -> Identity | None:
    """Identity for a child that user code started from a process of ours: a worker below it. None elsewhere."""
    data = mp_internals.handed_by_parent()
    if data is None:
        return None
    return Identity.from_dict(data).child(role=Role.WORKER, worker=0, n_workers=1)
