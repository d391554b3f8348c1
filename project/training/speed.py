"""Where a training's time goes: waiting for data, computing, logging and saving; and what bounded its speed."""

import resource
import sys
import time
from collections.abc import Callable

import torch

PARTS = ("data", "compute", "logging")
# Read from clocks and memory: no two runs have the same.
NAMES = ("speed/rows_per_s", "speed/data_wait_s", "speed/memory_mb")


class StepClock:
    """Splits the time of a training, validation left out, into three parts, told by where a step begins and ends.

    On a GPU the host runs ahead: what it waits for the device counts as compute where it waits.

    Args:
        clock: Seconds that only grow; for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.spent_s = dict.fromkeys(PARTS, 0.0)
        self.n_rows = 0
        self._since_s = 0.0
        self._is_running = False
        self._told: tuple[float, float, int] = (0.0, 0.0, 0)

    def start(self) -> None:
        """The training begins, or goes on after a validation; what passes from here is waiting for data."""
        self._since_s, self._is_running = self._clock(), True

    def pause(self) -> None:
        """A validation begins; what passed since the last call was logging."""
        self.spend("logging")
        self._is_running = False

    def spend(self, part: str, *, n_rows: int = 0) -> None:
        """What passed since the last call was spent on this."""
        if not self._is_running:
            return
        now = self._clock()
        self.spent_s[part] += now - self._since_s
        self._since_s = now
        self.n_rows += n_rows

    @property
    def total_s(self) -> float:
        """Seconds of all parts."""
        return sum(self.spent_s.values())

    def values(self) -> dict[str, float]:
        """Rows per second and seconds of waiting since they were last asked for, on this rank; and its memory now."""
        total_s, waited_s, n_rows = self._told
        self._told = (self.total_s, self.spent_s["data"], self.n_rows)
        rows_per_s = (self.n_rows - n_rows) / max(self.total_s - total_s, 1e-9)
        return dict(zip(NAMES, (rows_per_s, self.spent_s["data"] - waited_s, memory_mb()), strict=True))

    def summary(self) -> str:
        """One line: how fast, the share of each part, and which of them bounded the speed."""
        total_s = max(self.total_s, 1e-9)
        shares = {part: spent_s / total_s for part, spent_s in self.spent_s.items()}
        said = ", ".join(f"{part} {share:.0%}" for part, share in shares.items())
        return f"speed: {self.n_rows / total_s:,.0f} rows/s, bounded by {max(shares, key=shares.__getitem__)} ({said})"


def memory_mb() -> float:
    """Most memory that this process has had on its GPU; without one, the most that it has had at all."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated() / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
