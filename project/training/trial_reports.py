"""What rank 0 of a trial tells the sweep while it trains, and what it is told: go on, or end early."""

import time
from typing import Any

from project.common.processes import parent_link
from project.common.processes.handover import own_sweep
from project.common.processes.identity import current_identity
from project.common.processes.parent_link import process_messages
from project.common.processes.stop import stop_request

# While its storage does not answer the coordinator reads nothing; what waits in the pipe must not fill it.
PROGRESS_EVERY_S = 1.0
_LOOK_EVERY_S = 0.5


def is_in_sweep() -> bool:
    """Whether this process belongs to a trial of a sweep."""
    return own_sweep() is not None


class TrialReports:
    """The objective's values on their way up; does nothing outside a sweep, and in other ranks than 0."""

    def __init__(self) -> None:
        identity, sweep = current_identity(), own_sweep()
        self._is_heard = sweep is not None and identity is not None and not identity.rank
        self._is_answered = sweep is not None and sweep.prunes
        self._told_at_s = float("-inf")

    def report(self, value: float, *, step: int) -> bool:
        """Sends one intermediate value; returns whether the trial ends early.

        Args:
            value: The objective's.
            step: How many values there were, with this one: what pruners count.
        """
        if not self._is_heard or not parent_link.send("report", {"value": value, "step": step}):
            return False
        return self._is_answered and self._await_verdict()

    def _await_verdict(self) -> bool:
        """The coordinator may have to wait for its storage; should it be gone, this process is told to stop."""
        while stop_request() is None:
            try:
                return bool(process_messages.take("verdict", limit_s=_LOOK_EVERY_S))
            except TimeoutError:
                continue
        return False

    def progress(self, **facts: Any) -> None:
        """Sends how far the training is, for people to see; most calls send nothing."""
        now = time.monotonic()
        if self._is_heard and now - self._told_at_s >= PROGRESS_EVERY_S:
            self._told_at_s = now
            parent_link.send("progress", facts)
