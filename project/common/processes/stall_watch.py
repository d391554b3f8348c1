"""Main's watch over progress: a rank that makes no step is named, its stacks are kept, and the tree ends.

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

# Preparing data may take long without a step; from here on steps are due.
STEPPING = ("waiting for data", "training", "validating", "testing")
STACKS_SIGNAL = getattr(signal, "SIGQUIT", None)


class StallWatch:
    """Looks at the records of a run from time to time.

    Args:
        run_dir: The run's folder.
        limit_s: Seconds without a step, or a change of state, after which a rank counts as stalled.
    """

    def __init__(self, run_dir: str, *, limit_s: float) -> None:
        self._run_dir, self._limit_s = run_dir, limit_s
        self._interval_s = min(5.0, limit_s / 4)
        self._next = time.monotonic() + self._interval_s

    def seconds_to_next(self) -> float:
        """Seconds until it should look again."""
        return max(0.0, self._next - time.monotonic())

    def check(self) -> str | None:
        """Returns a line about the rank that stalled first, once its stacks are on disk; None while all is well."""
        if self.seconds_to_next() > 0:
            return None
        self._next = time.monotonic() + self._interval_s
        living = process_registry.living(self._run_dir)
        now = time.time()
        stalled = [r for r in living if _is_stepping(r) and now - r.last_sign > self._limit_s]
        if not stalled:
            return None
        culprit = min(stalled, key=lambda record: (_step(record), record.last_sign))
        self._keep_stacks(living)
        quiet_s = now - culprit.last_sign
        return (
            f"{culprit.identity.label} (pid {culprit.key.pid}) made no step for {quiet_s:.0f} s while "
            f"{culprit.state}, last step {_step(culprit)}; the stacks of all its threads are at the end of "
            f"{RunLayout(Path(self._run_dir)).process_log(culprit.identity.label, culprit.key.pid)} "
            "(processes.stall_timeout_s sets the limit)"
        )

    def _keep_stacks(self, records: list[ProcessRecord]) -> None:
        if STACKS_SIGNAL is not None:
            for record in records:
                linux.kill_process(record.key.pid, record.key.start_time, with_signal=STACKS_SIGNAL)
            time.sleep(0.2)  # faulthandler writes within milliseconds; the tree is about to be ended


def _is_stepping(record: ProcessRecord) -> bool:
    return record.identity.role is Role.RANK and record.outcome is None and record.state in STEPPING


def _step(record: ProcessRecord) -> int:
    return int((record.heartbeat or {}).get("step", 0))
