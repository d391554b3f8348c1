"""Tasks of a sweep's trials, which end as the command line or the environment says."""

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from project.common.managers import get_directory_manager
from project.common.processes.identity import current_identity
from tests.helpers import probe

SLOW = "SLOW_FROM"  # trials from this number on take 0.2 s for a step
Report = Callable[[int, dict[str, float]], None]


def run(
    *, report: Report, steps: int = 4, step_s: float = 0.0, given: Any = None, returns: Any = None
) -> Mapping[str, Any]:
    """Keeps what it was given in `seen.json`, reports `steps` values and returns the last.

    Args:
        report: The rank's.
        steps: 1 or more.
        step_s: Seconds of each.
        given: What is searched.
        returns: The loss that is returned in place of the last one.
    """
    (get_directory_manager().run_dir / "seen.json").write_text(json.dumps(given))
    loss = 1.0
    for step in range(1, steps + 1):
        time.sleep(max(step_s, 0.2 * is_slow()))
        loss = 1.0 / step
        report(step, {"loss": loss})
        probe.fire(step=step)
    return {"loss": loss if returns is None else returns, "other": 2 * loss}


def is_slow() -> bool:
    """Whether the environment wants this trial to take its time."""
    identity = current_identity()
    assert identity is not None
    assert identity.trial is not None
    return identity.trial >= int(os.environ.get(SLOW, "1000000"))
