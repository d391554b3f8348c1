"""What one trial may take: time and memory."""

from collections.abc import Callable
from dataclasses import dataclass

from project.common import process_registry


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of each trial; None sets none.

    Args:
        timeout_min: Minutes.
        memory_mb: Of all its processes together, shared pages counted once.
        stall_timeout_s: Seconds without a step.
        deadline_s: Seconds from a request to stop until it is killed.
    """

    timeout_min: float | None = None
    memory_mb: float | None = None
    stall_timeout_s: float | None = None
    deadline_s: float = 10.0

    @property
    def are_set(self) -> bool:
        """Whether there is anything to look at from time to time."""
        return self.timeout_min is not None or self.memory_mb is not None

    def passed(self, *, seconds: float, used_mb: Callable[[], float]) -> str | None:
        """One line about a limit that was passed; None when none was."""
        if self.timeout_min is not None and seconds > self.timeout_min * 60:
            return f"took longer than {self.timeout_min:g} min (hydra.launcher.timeout_min)"
        if self.memory_mb is not None and (used := used_mb()) > self.memory_mb:
            return f"out of memory: used {used:,.0f} MB of {self.memory_mb:,.0f} (hydra.launcher.memory_limit_mb)"
        return None


def memory_mb(run_dir: str) -> float:
    """Megabytes of all living processes of a run; what several share is divided among them where the system says."""
    import psutil

    total = 0.0
    for record in process_registry.living(run_dir):
        try:
            memory = psutil.Process(record.key.pid).memory_full_info()
        except psutil.Error:
            continue
        total += getattr(memory, "pss", 0) or memory.rss
    return total / 2**20
