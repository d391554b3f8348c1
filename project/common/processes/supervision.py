"""A parent's side of supervision: pass requests down, notice every end, leave none behind."""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from project.common import process_registry
from project.common.files.atomic import remove_stale_temporaries
from project.common.files.layout import RunLayout
from project.common.processes import linux, process_server, shm_cleanup, stop, strays
from project.common.processes.child import Child
from project.common.processes.handover import own_handover
from project.common.processes.identity import ProcessKey
from project.common.processes.outcome import Outcome, Status
from project.common.processes.stall_watch import StallWatch

log = logging.getLogger(__name__)

LEVEL_S = 1.0  # each level of the tree keeps this much of the deadline for itself
AFTER_CRASH_S = 2.0  # for the siblings of a crashed process
TREE_S = AFTER_CRASH_S + LEVEL_S  # for a tree below, whose levels share it
ORPHANS_S = 2.5  # for what is below a killed process, to end in order


def _ending_in_order() -> contextlib.AbstractContextManager[None]:
    """A spawned trial that watches ranks outlives main by the moments that it needs to end them.

    A forked one does not: it is bound to the process server, and so are its ranks.
    """
    handover = own_handover()
    is_spawned = handover is not None and handover.start_method == "spawn"
    return linux.outliving_parent() if is_spawned else contextlib.nullcontext()


@dataclass
class Supervisor:
    """Watches children until all have ended, whatever happens.

    Args:
        children: What to watch.
        on_message: Called with (child, kind, data) for every message but the outcome.
        stall_watch: Looks for ranks that make no progress; None leaves that to somebody above.
        stalled: What it found.
    """

    children: Sequence[Child]
    on_message: Callable[[Child, str, Any], None] = lambda child, kind, data: None
    stall_watch: StallWatch | None = None
    stalled: str | None = None
    first_failure: Child | None = None
    server_lost: bool = False
    _told: stop.StopRequest | None = None
    _kill_at: float | None = None

    def run(self) -> None:
        """Returns when every child has ended."""
        try:
            with _ending_in_order(), stop.woken() as wake:
                self._until_all_ended(wake)
        finally:
            self.close()

    def _until_all_ended(self, wake: int) -> None:
        try:
            self._turn_until_all_ended(wake)
        except BaseException as error:
            self.end(f"{type(error).__name__} in the parent")
            self._turn_until_all_ended(wake)  # should it fail again, the children notice that their parent goes
            raise

    def _turn_until_all_ended(self, wake: int) -> None:
        while self.is_running:
            self.look_around()
            ready = wait([wake, *self.sources()], self.seconds_to_next())
            if wake in ready:
                os.read(wake, 4096)
            self.turn(ready)

    @property
    def is_running(self) -> bool:
        """Whether a child lives."""
        return bool(self._living())

    def sources(self) -> list[Any]:
        """What `multiprocessing.connection.wait` should wait for."""
        living = self._living()
        return [child.process.sentinel for child in living] + [c.control for c in living if c.control is not None]

    def look_around(self) -> None:
        """Before each wait: hands a new request to stop down, and looks for stalls when it is time to."""
        self._obey()
        self._look_for_stalls()

    def turn(self, ready: Container[Any]) -> None:
        """After each wait: takes messages and ends from those sources that are ready."""
        living = self._living()
        for child in living:
            if child.control in ready:
                self._receive(child)
        for child in living:
            if child.process.sentinel in ready:
                self._ended(child)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_the_rest()

    def seconds_to_next(self) -> float | None:
        """Longest time to wait; None without a limit."""
        if self._kill_at is not None:
            return max(0.0, self._kill_at - time.monotonic())
        return None if self.stall_watch is None else self.stall_watch.seconds_to_next()

    def end(self, reason: str, *, grace_s: float = TREE_S) -> None:
        """Tells all children to stop, and kills them after `grace_s`."""
        self._tell(reason, exit_code=1, deadline=time.monotonic() + grace_s)

    def close(self) -> None:
        """Closes the supervision pipes."""
        for child in self.children:
            child.close()

    def _living(self) -> list[Child]:
        return [child for child in self.children if child.exit_code is None]

    def _look_for_stalls(self) -> None:
        if self.stall_watch is not None and self._kill_at is None:
            self.stalled = self.stall_watch.check()
            if self.stalled is not None:
                self.end(self.stalled)

    def _obey(self) -> None:
        """Hands a new request of our own parent, or of a signal, down to the children."""
        request = stop.stop_request()
        if request is not None and request is not self._told:
            self._told = request
            self._tell(request.reason, exit_code=request.exit_code, deadline=request.deadline - LEVEL_S)

    def _tell(self, reason: str, *, exit_code: int, deadline: float) -> None:
        deadline = min(deadline, self._kill_at or deadline)
        self._kill_at = deadline
        for child in self._living():
            child.send("stop", {"reason": reason, "exit_code": exit_code, "deadline": deadline - LEVEL_S / 2})

    def _receive(self, child: Child) -> None:
        assert child.control is not None
        try:
            while child.control.poll():
                kind, data = child.control.recv()
                if kind == "outcome":
                    child.outcome = Outcome(**data | {"status": Status(data["status"])})
                else:
                    self.on_message(child, kind, data)
        except (EOFError, OSError):
            child.close()

    def _ended(self, child: Child) -> None:
        if child.control is not None:
            self._receive(child)  # what it said last
        child.process.join()
        child.exit_code = child.process.exitcode
        if child.exit_code != 0 and child.process.pid is not None and child.start_time:
            shm_cleanup.remove_of(replace(ProcessKey.own(), pid=child.process.pid, start_time=child.start_time))
        child.close()
        if child.outcome is None:
            child.outcome = _recorded_outcome(child)
        if child.exit_code == 0 and child.outcome is None:
            child.exit_code = 1
            child.cause = f"{child.name} ended without saying how: something in it called os._exit(0)"
        if child.exit_code == 255 and child.outcome is None and child.process.lost_server:
            self.server_lost = True
            child.cause = (
                f"{child.name} was lost with the process server (pid {process_server.pid()}), which was killed"
            )
        if child.exit_code != 0 and self.first_failure is None:
            self.first_failure = child
            self._end_siblings(child)

    def _end_siblings(self, child: Child) -> None:
        if not self._living():
            return
        if child.outcome is not None and child.outcome.status is Status.INTERRUPTED:
            return  # it was told to stop, and so were they: their deadline runs already
        is_pruned = child.outcome is not None and child.outcome.status is Status.PRUNED
        level, why = logging.INFO if is_pruned else logging.ERROR, child.how_it_ended()
        log.log(level, "%s; the others are stopped", why, extra={"terminal": False})
        self.end(f"{stop.PEER_PRUNED}: {why}" if is_pruned else why, grace_s=AFTER_CRASH_S)

    def _kill_the_rest(self) -> None:
        for child in self._living():
            if child.was_killed:  # and nobody says so: the server, which would, is stopped or hangs
                process_server.kill()
                continue
            child.was_killed = True
            child.cause = f"{child.name} did not stop in time and was killed"
            log.warning("%s", child.cause)
            child.kill()
        self._kill_at = time.monotonic() + LEVEL_S / 2


def _recorded_outcome(child: Child) -> Outcome | None:
    if child.identity.run_dir is None or child.process.pid is None:
        return None
    record = process_registry.find_record(child.identity.run_dir, child.process.pid)
    if record is None or record.outcome is None or record.key.start_time != child.start_time:
        return None
    names = ("exit_code", "cause", "exception", "traceback")
    return Outcome(status=Status(record.outcome["status"]), **{name: record.outcome[name] for name in names})


def end_strays(trial: Child) -> None:
    """Ends what the task of a trial that has ended, with its subtree, left running."""
    if trial.process.pid is not None and trial.process.handover.mark is not None:
        strays.end_trial(trial.process.handover.mark, trial.process.pid, trial.start_time)


def end_subtree(run_dir: str | None, *, grace_s: float = ORPHANS_S) -> list[str]:
    """Waits for what is left of a run's tree to end in order, then kills it; returns who had to be killed."""
    if run_dir is None:
        return []
    request = stop.stop_request()
    deadline = time.monotonic() + grace_s
    if request is not None:
        deadline = min(deadline, request.deadline - LEVEL_S)
    while process_registry.living(run_dir) and time.monotonic() < deadline:
        time.sleep(0.02)
    killed = process_registry.kill_remaining(run_dir)
    for record in process_registry.read_run(run_dir):
        shm_cleanup.remove_of(record.key)
    for folder in RunLayout(Path(run_dir)).written_dirs():
        remove_stale_temporaries(folder)
    return [f"{record.identity.label} (pid {record.key.pid})" for record in killed]
