"""A task that computes next to nothing and imports nothing heavy: it exercises the processes around it."""

import time
from collections.abc import Callable


def run(*, steps: int = 3, step_s: float = 0.01, report: Callable[[int, dict[str, float]], None]) -> dict[str, float]:
    """Sleeps through a number of steps, reports a falling loss at each and returns the last.

    Args:
        steps: 1 or more; `report(step, {"loss": ...})` is called with 1 to `steps`.
        step_s: seconds each step takes.
        report: an exception it raises ends the run.

    Raises:
        ValueError: no step, or a negative time.
    """
    if steps < 1:
        raise ValueError(f"steps: {steps}; use 1 or more")
    if step_s < 0:
        raise ValueError(f"step_s: {step_s}; use 0 or more seconds")
    loss = 1.0
    for step in range(1, steps + 1):
        time.sleep(step_s)
        loss = 1.0 / step
        report(step, {"loss": loss})
    return {"loss": loss}
