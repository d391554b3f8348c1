"""Fault injection by environment: `PROBE="rank=1,step=3,do=kill"` acts at the place that matches, and only there.

Places are `trial`, `rank`, `worker`, `attempt` (from the identity) and `step` (from the caller). A probe that names no
worker never acts in a worker. What it does: `raise`, `kill`, `term`, `exit`, `sysexit0`, `sleep`, `segv`.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

from project.common.processes.identity import current_identity


class ProbeError(Exception):
    """What `do=raise` raises."""


def fire(*, step: int) -> None:
    """Does what the environment asks for, if this is the place."""
    wanted = _wanted()
    action = wanted.pop("do", None)
    if action is not None and wanted == {name: value for name, value in _here(step).items() if name in wanted}:
        _ACTIONS[action]()


def _wanted() -> dict[str, str]:
    text = os.environ.get("PROBE", "")
    wanted = dict(item.split("=", 1) for item in text.split(",") if item)
    return {"worker": "None"} | wanted if wanted else {}


def _here(step: int) -> dict[str, str]:
    identity = current_identity()
    names = ("trial", "rank", "worker", "attempt")
    return {name: str(getattr(identity, name, None)) for name in names} | {"step": str(step)}


def _raise() -> None:
    raise ProbeError("the probe raised")


def _signal_self(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def _segv() -> None:
    ctypes.string_at(0)


_ACTIONS: dict[str, Callable[[], None]] = {
    "raise": _raise,
    "kill": _signal_self(signal.SIGKILL),
    "term": _signal_self(signal.SIGTERM),
    "exit": lambda: os._exit(3),
    "sysexit0": lambda: sys.exit(0),
    "sleep": lambda: time.sleep(600),
    "segv": _segv,
}
