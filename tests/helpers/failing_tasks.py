"""Tasks of sweeps, without a model: they end in every way, and note what they saw.

They are chosen in place of the trivial task, and take its parameters besides their own.
"""

import ctypes
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from project.common.processes.identity import current_identity

Report = Callable[[int, dict[str, float]], None]


def end_by(*, way: str, report: Report, rank: int = 0, **rest: float) -> dict[str, float]:
    """Ends in the way that is named, in one rank; `ok` everywhere else."""
    identity = current_identity()
    assert identity is not None
    report(1, {"loss": 1.0})
    print(f"about to end by {way}", flush=True)
    if way == "work":
        _work(report)
    if identity.rank == rank and way != "ok":
        _WAYS[way]()
    report(2, {"loss": 0.5})
    return {"loss": 0.5}


def _work(report: Report) -> None:
    """Steps until it is told to stop."""
    for step in range(2, 60_000):
        time.sleep(0.01)
        report(step, {})


def _raise() -> None:
    raise ArithmeticError("on purpose")


def _interrupt() -> None:
    raise KeyboardInterrupt


def _leave_a_child() -> None:
    """A process of the task's own, in a session of its own."""
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    raise ArithmeticError(f"left sleep {child.pid}")


def _ignore_all() -> None:
    """Holds the interpreter's lock, so that no request to stop is heard."""
    ctypes.PyDLL(None).sleep(600)


def _leave_a_stubborn_child() -> None:
    """One that ignores SIGTERM, and is seconds in ending."""
    subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], start_new_session=True)
    raise ArithmeticError("left a process that ignores SIGTERM")


def _grow() -> None:
    kept = []
    for _ in range(600):
        kept.append(bytearray(os.urandom(2**20)) * 20)
        time.sleep(0.02)
    time.sleep(600)


_WAYS: dict[str, Callable[[], Any]] = {
    "raise": _raise,
    "exit0": lambda: sys.exit(0),
    "interrupt": _interrupt,
    "exit3": lambda: sys.exit(3),
    "osexit0": lambda: os._exit(0),
    "osexit3": lambda: os._exit(3),
    "segv": lambda: ctypes.string_at(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "child": _leave_a_child,
    "stubborn": _leave_a_stubborn_child,
    "hang": _ignore_all,
    "sleep": lambda: time.sleep(600),
    "grow": _grow,
}


def note(
    *, folder: str, sleep_s: float = 0.0, way: str = "ok", prefix: str = "", report: Report, **rest: float
) -> dict[str, float]:
    """Writes what this process sees to a file of its own, once it has slept."""
    began, identity = time.time(), current_identity()
    assert identity is not None
    seen = {
        "trial": identity.trial,
        "rank": identity.rank,
        "pid": os.getpid(),
        "folder": identity.run_dir,
        "slept_s": sleep_s,
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }
    report(1, {"loss": sleep_s})
    time.sleep(sleep_s)
    written = {**seen, "began": began, "ended": time.time()}
    Path(folder, f"facts-{prefix}{identity.trial}-{identity.rank}.json").write_text(json.dumps(written))
    if way != "ok":
        _WAYS[way]()
    return {"loss": sleep_s}


def spoil(*, folder: str, report: Report, **rest: float) -> dict[str, float]:
    """Notes what this process finds, and then changes all of it, as a careless task does."""
    import torch
    import torch.distributed as dist

    identity = current_identity()
    assert identity is not None
    found = {
        "began": time.time(),
        "variable": os.environ.get("SPOILT"),
        "dtype": str(torch.get_default_dtype()),
        "benchmark": torch.backends.cudnn.benchmark,
        "random": [random.random(), float(torch.rand(()))],
        "level": logging.getLogger("spoilt").level,
        "group": dist.is_initialized(),
        "patched": hasattr(json, "spoilt"),
        "cuda": torch.cuda.is_initialized(),
        "pid": os.getpid(),
    }
    Path(folder, f"facts-{identity.trial}.json").write_text(json.dumps(found))
    os.environ["SPOILT"] = "yes"
    torch.set_default_dtype(torch.float64)
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    logging.getLogger("spoilt").setLevel(logging.ERROR)
    json.spoilt = True  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    report(1, {"loss": 1.0})
    return {"loss": 1.0}
