"""Main's watch over progress: a process that gets no further is named, all stacks are kept, and the tree ends.

Heartbeats come from the step hook, so a process that lives and does nothing shows. The stacks are written by
faulthandler in C, also when some native call holds the interpreter's lock.
"""

import logging
import signal
import time
from pathlib import Path

from project.common import process_registry
from project.common.files.layout import RunLayout
from project.common.process_registry import ProcessRecord
from project.common.processes import linux
from project.common.processes.identity import Role

log = logging.getLogger(__name__)

# In these a rank makes steps, or is about to. Preparing data may take hours; whatever else it does has a limit, too,
# and a longer one: imports, models and uploads may be slow.
STEPPING = ("waiting for data", "training", "validating", "testing", "saving")
PREPARING, STARTING = "preparing data", "starting"
UNSTEPPED_FACTOR, UNSTEPPED_LEAST_S = 3.0, 60.0
STACKS_SIGNAL = getattr(signal, "SIGQUIT", None)
# Where a rank's main thread is while it waits for the others.
_COLLECTIVE = ("/torch/autograd/", "/torch/distributed/")


class StallWatch:
    """Looks at the records of a run from time to time.

    Args:
        run_dir: The run's folder.
        limit_s: Seconds without a step after which a rank counts as stalled, and in which a process may be stopped.
    """

    def __init__(self, run_dir: str, *, limit_s: float) -> None:
        self._run_dir, self._limit_s = run_dir, limit_s
        self._unstepped_s = max(UNSTEPPED_FACTOR * limit_s, UNSTEPPED_LEAST_S)
        self._interval_s = min(5.0, limit_s / 4)
        self._next = time.monotonic() + self._interval_s
        self._stopped_since: dict[int, float] = {}
        self._suspects: dict[int, float] = {}

    def seconds_to_next(self) -> float:
        """Seconds until it should look again."""
        return max(0.0, self._next - time.monotonic())

    def check(self) -> str | None:
        """Returns a line about what stalled first, once all stacks are on disk; None while all is well."""
        if self.seconds_to_next() > 0:
            return None
        self._next = time.monotonic() + self._interval_s
        living = [r for r in process_registry.living(self._run_dir, below_main=False) if r.identity.role != Role.MAIN]
        stopped, stalled = self._stopped(living), self._without_progress(living)
        if stopped is not None and (stalled or time.monotonic() - stopped[1] > self._limit_s):
            return self._describe_stopped(*stopped)  # the others wait for it
        if not stalled:
            return None
        self._keep_stacks(living)
        return self._describe(self._guilty(stalled))

    def _stopped(self, living: list[ProcessRecord]) -> tuple[ProcessRecord, float] | None:
        """The process that is stopped for longest, and since when."""
        now = time.monotonic()
        stopped = {r.key.pid: r for r in living if linux.is_stopped(r.key.pid)}
        self._stopped_since = {pid: self._stopped_since.get(pid, now) for pid in stopped}
        if not stopped:
            return None
        first = min(stopped, key=lambda pid: self._stopped_since[pid])
        return stopped[first], self._stopped_since[first]

    def _describe_stopped(self, record: ProcessRecord, since: float) -> str:
        stopped_s = time.monotonic() - since
        return (
            f"{record.identity.label} (pid {record.key.pid}) was stopped (SIGSTOP) for {stopped_s:.0f} s "
            "and nobody let it go on (processes.stall_timeout_s sets the limit)"
        )

    def _without_progress(self, living: list[ProcessRecord]) -> list[ProcessRecord]:
        """A second look decides: after a suspended machine has woken up every sign is old, and the next one near."""
        found = [record for record in living if self._is_over_limit(record)]
        stalled = [record for record in found if self._suspects.get(record.key.pid) == record.last_sign]
        self._suspects = {record.key.pid: record.last_sign for record in found}
        return stalled

    def _guilty(self, stalled: list[ProcessRecord]) -> list[ProcessRecord]:
        """Of ranks at the same step, those that wait for others are not to blame. Without stacks all are named."""
        least = min(_step(record) for record in stalled)
        behind = sorted((r for r in stalled if _step(r) == least), key=lambda record: record.last_sign)
        return [record for record in behind if not self._waits_for_others(record)] or behind

    def _is_over_limit(self, record: ProcessRecord) -> bool:
        limit_s = self._limit_of(record)
        return limit_s is not None and time.time() - record.last_sign > limit_s

    def _limit_of(self, record: ProcessRecord) -> float | None:
        """Seconds without a sign that `record` may have; None for what may take long, or others' signs stand for."""
        role, state = record.identity.role, record.history[-1][0] if record.history else STARTING
        if record.outcome is not None:
            return self._unstepped_s if role in (Role.TRIAL, Role.RANK) else None
        if role is Role.TRIAL:
            return self._unstepped_s if state in (STARTING, "closing") else None
        if role is not Role.RANK or state == PREPARING:
            return None
        return self._limit_s if state in STEPPING else self._unstepped_s

    def _describe(self, guilty: list[ProcessRecord]) -> str:
        names = ", ".join(f"{record.identity.label} (pid {record.key.pid})" for record in guilty)
        first = guilty[0]
        quiet_s = time.time() - first.last_sign
        logs = RunLayout(Path(self._run_dir))
        what = f"made no step for {quiet_s:.0f} s while {first.state}, last step {_step(first)}"
        if first.state not in STEPPING:
            what = f"got no further for {quiet_s:.0f} s while {'exiting' if first.outcome else first.state}"
        return (
            f"{names} {what}; the stacks of all its threads are at the end of "
            f"{logs.process_log(first.identity.label, first.key.pid)} (processes.stall_timeout_s sets the limit)"
        )

    def _keep_stacks(self, records: list[ProcessRecord]) -> None:
        if STACKS_SIGNAL is not None:
            for record in records:
                if record.identity.role is not Role.SERVER:
                    linux.kill_process(record.key.pid, record.key.start_time, with_signal=STACKS_SIGNAL)
            time.sleep(0.2)  # faulthandler writes within milliseconds; the tree is about to be ended

    def _waits_for_others(self, record: ProcessRecord) -> bool:
        """Whether the main thread, the last in the dump, is in a collective operation."""
        path = RunLayout(Path(self._run_dir)).process_log(record.identity.label, record.key.pid)
        try:
            dump = path.read_text(errors="replace").rpartition("(most recent call first):")[2]
        except OSError:
            return False
        return any(part in dump.strip().partition("\n")[0] for part in _COLLECTIVE)


def _step(record: ProcessRecord) -> int:
    return int((record.heartbeat or {}).get("step", 0))
