"""One job of a sweep: what it is given, how it ended, and while it runs."""

import pickle
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn

from project.common.devices.device_leases import Lease
from project.common.processes.child import Child
from project.common.processes.handover import SweepInfo
from project.common.processes.outcome import Outcome, Status
from project.common.processes.stall_watch import StallWatch
from project.common.processes.supervision import Supervisor

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one process is started for.

    Args:
        number: The trial's number, or the job's place in the launch.
        config: As Hydra composed it, with Hydra's own node.
        folder: Where it writes.
        sweep: What its processes know of the sweep.
        attempt: 2 and more go on from the checkpoint in the folder.
    """

    number: int
    config: "DictConfig"
    folder: Path
    sweep: SweepInfo
    attempt: int = 1


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a job ended.

    Args:
        outcome: For people and for the study.
        result: The record of a training; None when it sent none.
        returned: Hydra's; None when the process died before it could send it.
        seconds: From start to end.
        is_servers_fault: Whether it ended because the process server was killed.
    """

    job: Job
    outcome: Outcome
    result: dict[str, Any] | None
    returned: JobReturn | None
    seconds: float
    is_servers_fault: bool = False


@dataclass(kw_only=True)
class RunningJob:
    """A job whose process lives, or is being tidied up after.

    Args:
        progress: What it said last of how far it is.
        limit: Why we ended it; None when we did not.
        tidying: Ends what the process left; `is_tidy` says that it is done.
        is_told: It is to end with the sweep, through no fault of its own.
    """

    job: Job
    child: Child
    supervisor: Supervisor
    lease: Lease | None
    started: float = field(default_factory=time.monotonic)
    progress: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    returned: bytes | None = None
    limit: str | None = None
    tidying: threading.Thread | None = None
    is_tidy: bool = False
    is_told: bool = False
    next_look: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self.started

    def end(self, why: str) -> None:
        """Ends it, once; the first reason counts."""
        if self.limit is None:
            self.limit = why
            self.supervisor.end(why)

    def ended(self, outcome: Outcome) -> Ended:
        """The record of its end."""
        returned = pickle.loads(self.returned) if self.returned is not None else None
        if self.limit is not None and outcome.status is not Status.COMPLETED:
            outcome = Outcome(status=Status.CRASHED, exit_code=1, cause=self.limit)
        return Ended(
            job=self.job,
            outcome=outcome,
            result=self.result,
            returned=returned,
            seconds=self.seconds,
            is_servers_fault=self.supervisor.server_lost,
        )


def watch_for(folder: Path, limit_s: float | None) -> StallWatch | None:
    """The watch over the progress of a job in `folder`; None without a limit."""
    return None if limit_s is None else StallWatch(str(folder), limit_s=limit_s)
