"""A started process as its parent sees it."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from project.common.processes import linux
from project.common.processes.handover import Handover
from project.common.processes.identity import Identity
from project.common.processes.managed_process import ManagedProcess
from project.common.processes.outcome import Outcome, describe_exit


@dataclass(kw_only=True)
class Child:
    """A started process as its parent sees it.

    Args:
        process: The process.
        control: The parent's end of the supervision pipe; None once it is closed.
        start_time: With the pid, exactly this process.
        outcome: How it said that it ended; None when it said nothing.
        exit_code: None while it lives.
    """

    process: ManagedProcess
    control: Connection | None
    start_time: str
    outcome: Outcome | None = None
    exit_code: int | None = None
    cause: str | None = None
    was_killed: bool = False
    _sending: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def identity(self) -> Identity:
        """Who it is."""
        return self.process.handover.identity

    @property
    def name(self) -> str:
        """For messages: role, place and pid."""
        return f"{self.identity.label} (pid {self.process.pid})"

    def send(self, kind: str, data: Any) -> None:
        """Sends a message down, from any thread; a child that is gone cannot be told, and that is no error."""
        with self._sending, contextlib.suppress(OSError):
            if self.control is not None:
                self.control.send((kind, data))

    def close(self) -> None:
        """Closes the supervision pipe."""
        with self._sending:
            if self.control is not None:
                self.control.close()
                self.control = None

    def kill(self) -> None:
        """SIGKILL to exactly this process."""
        assert self.process.pid is not None
        linux.kill_process(self.process.pid, self.start_time)

    def how_it_ended(self) -> str:
        """One line for people."""
        if self.cause:
            return self.cause
        if self.outcome is not None and self.outcome.cause:
            return f"{self.name}: {self.outcome.cause}"
        return f"{self.name} {describe_exit(self.exit_code)}"


def start_child(target: Callable[..., Any], handover: Handover, *, args: tuple[Any, ...] = ()) -> Child:
    """Starts a process of the tree with a supervision pipe to it."""
    ours, theirs = Pipe(duplex=True)
    handover.control = theirs
    process = ManagedProcess(target, handover=handover, args=args)
    try:
        process.start()
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
        handover.control = None
    assert process.pid is not None
    return Child(process=process, control=ours, start_time=linux.process_start_time(process.pid) or "")
