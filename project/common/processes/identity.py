"""Who this process is: its role and place in the tree, and how another process recognises it."""

import os
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from project.common.processes import linux


class Role(StrEnum):
    """What a process is for. `server` is in the registry only; it builds no managers."""

    MAIN = "main"
    SERVER = "server"
    TRIAL = "trial"
    RANK = "rank"
    WORKER = "worker"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A process's place in the tree: plain data, handed from parent to child.

    Args:
        role: What the process is for.
        run_dir: The run's folder, or None before there is one.
        attempt: 1 for a new run, one more each time that it is taken up again.
        trial: Number of the trial; 0 outside a sweep.
        rank: Place in the process group, 0 up to `world_size - 1`; None for main and for a trial that has ranks below.
        worker: Number of the DataLoader worker within its rank; None elsewhere.
    """

    role: Role
    run_dir: str | None = None
    attempt: int = 1
    trial: int = 0
    rank: int | None = None
    world_size: int = 1
    worker: int | None = None
    n_workers: int = 0

    @property
    def label(self) -> str:
        """Short name for logs, titles and file names, such as `rank0-worker1`."""
        rank = "" if self.rank is None else f"rank{self.rank}"
        match self.role:
            case Role.RANK:
                return rank or "rank0"
            case Role.WORKER:
                return f"{rank or 'rank0'}-worker{self.worker or 0}"
            case _:
                return str(self.role)

    def child(self, **changes: Any) -> "Identity":
        """The identity of a process below this one."""
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as it crosses process boundaries and stands in records."""
        return asdict(self) | {"role": str(self.role)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Identity":
        """The inverse of `as_dict`."""
        return cls(**data | {"role": Role(data["role"])})


@dataclass(frozen=True, kw_only=True)
class ProcessKey:
    """What tells one process from every other on all machines, for ever: a pid alone is used again."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    start_time: str

    @classmethod
    def of(cls, pid: int) -> "ProcessKey | None":
        """Key of a process on this machine; None if it is gone."""
        start_time = linux.process_start_time(pid)
        if start_time is None:
            return None
        return cls(
            host=linux.host(),
            boot_id=linux.boot_id(),
            pid_namespace=linux.pid_namespace(),
            pid=pid,
            start_time=start_time,
        )

    @classmethod
    def own(cls) -> "ProcessKey":
        """Key of the calling process."""
        key = cls.of(os.getpid())
        assert key is not None, "a running process has a start time"
        return key

    def is_local(self) -> bool:
        """Whether this process could be seen from here: same host, boot and pid namespace."""
        here = (linux.host(), linux.boot_id(), linux.pid_namespace())
        return (self.host, self.boot_id, self.pid_namespace) == here

    def is_alive(self) -> bool:
        """Whether it lives on this machine; False for other machines, whose processes cannot be seen from here."""
        return self.is_local() and linux.process_start_time(self.pid) == self.start_time


_current: Identity | None = None


def current_identity() -> Identity | None:
    """Identity of this process, or None when nobody has said: then it is no process of a run."""
    return _current


def set_identity(identity: Identity | None) -> None:
    """Says who this process is; done by its entry, once."""
    global _current
    _current = identity
