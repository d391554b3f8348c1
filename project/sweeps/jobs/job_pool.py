"""The jobs that run now: started one by one, watched together, each ended by itself. No job waits for another."""

import logging
import os
import pickle
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, Self

from project.common.devices.device_leases import Lease
from project.common.processes import stop
from project.common.processes.child import start_child
from project.common.processes.handover import Handover, process_environ
from project.common.processes.identity import Identity, Role
from project.common.processes.outcome import Outcome
from project.common.processes.supervision import Supervisor, end_strays, end_subtree
from project.sweeps.jobs.job import Ended, Job, RunningJob, watch_for
from project.sweeps.jobs.limits import Limits, memory_mb
from project.sweeps.jobs.trial_job import run_job_process
from project.training.ending import outcome_of_trial

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
IDLE_S = 60.0


class JobPool:
    """Runs jobs in processes of their own. A context manager: nothing runs any more afterwards.

    Args:
        start_method: `forkserver` or `spawn`.
        shared: What each job's process is given besides its configuration; see `run_job_process`.
        limits: Of time and memory, for each job.
        on_message: Called with (running job, kind, data) for what a job says while it runs.
    """

    def __init__(
        self,
        *,
        start_method: str,
        shared: bytes,
        limits: Limits,
        on_message: Callable[[RunningJob, str, Any], None],
    ) -> None:
        self.start_method = start_method
        self._shared, self._limits, self._on_message = shared, limits, on_message
        self.running: list[RunningJob] = []
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_w, False)

    def __enter__(self) -> Self:
        stop.wake_on_request(self._wake_w)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for running in self.running:
                running.end(f"{kind.__name__ if kind else 'the end'} in the sweep's main process")
            while self.running:
                self.turn(IDLE_S)
        finally:
            stop.no_longer_wake(self._wake_w)
            os.close(self._wake_r)
            os.close(self._wake_w)

    @property
    def n_busy(self) -> int:
        """How many jobs work; what the others left is being ended, which takes no slot."""
        return sum(running.tidying is None for running in self.running)

    def start(self, job: Job, *, lease: Lease | None = None, environ: dict[str, str] | None = None) -> RunningJob:
        """Starts a job; the lease is given back when it has ended."""
        handover = Handover(
            identity=Identity(role=Role.TRIAL, run_dir=str(job.folder), attempt=job.attempt, trial=job.number),
            environ=process_environ() | (environ or {}),
            start_method=self.start_method,
            deadline_s=self._limits.deadline_s,
            sweep=job.sweep,
        )
        try:
            child = start_child(run_job_process, handover, args=(self._shared, pickle.dumps(job.config)))
        except BaseException:
            if lease is not None:
                lease.release()
            raise
        supervisor = Supervisor([child], stall_watch=watch_for(job.folder, self._limits.stall_timeout_s))
        running = RunningJob(job=job, child=child, supervisor=supervisor, lease=lease)
        supervisor.on_message = lambda child, kind, data: self._take(running, kind, data)
        self.running.append(running)
        return running

    def turn(self, limit_s: float) -> list[Ended]:
        """Waits for something to happen, for `limit_s` at most; returns the jobs that have ended and left nothing."""
        for running in self.running:
            running.supervisor.look_around()
            self._look_at(running)
        alive = [running for running in self.running if running.tidying is None]
        sources = [source for running in alive for source in running.supervisor.sources()]
        ready = wait([self._wake_r, *sources], self._seconds_to_next(alive, limit_s))
        if self._wake_r in ready:
            os.read(self._wake_r, 4096)
        for running in alive:
            running.supervisor.turn(ready)
            if not running.supervisor.is_running:
                self._tidy_up_after(running)
        return [self._close(r) for r in list(self.running) if r.is_tidy]

    def _seconds_to_next(self, alive: list[RunningJob], limit_s: float) -> float:
        times = [limit_s, *(running.supervisor.seconds_to_next() for running in alive)]
        if alive and self._limits.are_set:
            times.append(LOOK_EVERY_S)
        return max(0.0, min(seconds for seconds in times if seconds is not None))

    def _look_at(self, running: RunningJob) -> None:
        """Ends a job that has passed a limit."""
        now = time.monotonic()
        if not self._limits.are_set or now < running.next_look or running.tidying is not None:
            return
        running.next_look = now + LOOK_EVERY_S
        passed = self._limits.passed(seconds=running.seconds, used_mb=lambda: memory_mb(str(running.job.folder)))
        if passed is not None:
            running.end(passed)

    def _take(self, running: RunningJob, kind: str, data: Any) -> None:
        if kind == "result":
            running.result = data
        elif kind == "returned":
            running.returned = data
        elif kind == "progress":
            running.progress |= data
        else:
            self._on_message(running, kind, data)

    def _tidy_up_after(self, running: RunningJob) -> None:
        """On a thread: what is left may take seconds to end, and the other jobs are not to wait for it."""
        running.tidying = threading.Thread(
            target=self._tidy, args=(running,), name=f"tidies-{running.job.number}", daemon=True
        )
        running.tidying.start()

    def _tidy(self, running: RunningJob) -> None:
        try:
            killed = end_subtree(str(running.job.folder))
            end_strays(running.child)
            if killed:
                log.warning("trial %d: killed, for it did not end: %s", running.job.number, ", ".join(killed))
        except Exception:
            log.exception("trial %d: what it left could not be looked at", running.job.number)
        finally:
            if running.lease is not None:
                running.lease.release()
            running.is_tidy = True
            os.write(self._wake_w, b"!")

    def _close(self, running: RunningJob) -> Ended:
        assert running.tidying is not None
        running.tidying.join()
        running.supervisor.close()
        self.running.remove(running)
        return running.ended(_outcome(running))


def _outcome(running: RunningJob) -> Outcome:
    stalled = running.supervisor.stalled
    if stalled is not None and running.limit is None:
        running.limit = stalled
    return outcome_of_trial(running.child)
