"""How tensors get from loader workers to ranks, and whether shared memory and open files will do for it."""

import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from project.common.errors import ConfigError
from project.common.files.disk import size_text

log = logging.getLogger(__name__)

SHM = Path("/dev/shm")
Strategy = Literal["file_descriptor", "file_system"]
STRATEGIES = ("auto", "file_descriptor", "file_system")
# Every tensor that came from a worker holds a descriptor as long as it lives: below this a kept epoch may exhaust them.
FEW_FILES = 4096
# Most of it is left to others: the rendezvous, other jobs of this machine, tensors in ranks.
USABLE_SHARE = 0.8
NEARLY_FULL = 0.9
ONE_LOCK_MB = 8 / 1024  # two pages
SMALLER = (
    "use fewer loader.num_workers, a smaller loader.prefetch_factor or loader.batch_size, or give the container more "
    "(docker run --shm-size=8g)"
)


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """What was decided for this process.

    Args:
        file_limit: Files that it may have open, after raising the limit.
    """

    strategy: Strategy
    reason: str
    file_limit: int


def apply_sharing(wish: str = "auto") -> Sharing:
    """Raises the limit of open files as far as allowed, and sets torch's way of sharing tensors for this process.

    The process that *sends* a tensor decides how: call it in each loader worker too.

    Raises:
        ConfigError: When `wish` is none of `STRATEGIES`, or is not possible on this system.
    """
    import torch.multiprocessing

    file_limit = raise_file_limit()
    strategy, reason = choose_strategy(
        wish, file_limit=file_limit, possible=torch.multiprocessing.get_all_sharing_strategies()
    )
    torch.multiprocessing.set_sharing_strategy(strategy)
    return Sharing(strategy=strategy, reason=reason, file_limit=file_limit)


def choose_strategy(wish: str, *, file_limit: int, possible: set[str]) -> tuple[Strategy, str]:
    """Torch's sharing strategy and why."""
    if wish not in STRATEGIES:
        choices = ", ".join(STRATEGIES[:-1])
        raise ConfigError(f"managers.tensor.sharing_strategy: {wish!r} is unknown; use {choices} or {STRATEGIES[-1]}")
    if wish != "auto" and wish not in possible:
        raise ConfigError(f"managers.tensor.sharing_strategy: {wish!r} is not possible on this system; use auto")
    if wish != "auto":
        return cast(Strategy, wish), "as configured"
    if "file_descriptor" not in possible:
        return "file_system", "the only one of this system"
    if file_limit < FEW_FILES:
        return (
            "file_system",
            f"only {file_limit} files may be open (ulimit -n), and file_descriptor needs one per tensor",
        )
    return "file_descriptor", f"{file_limit} files may be open, and nothing stays in {SHM} after a kill"


def raise_file_limit() -> int:
    """Raises the soft limit of open files to the hard one; returns what holds then."""
    try:
        import resource
    except ImportError:
        return FEW_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as error:  # macOS says unlimited, and refuses it
            log.debug("the limit of open files stays at %d: %s", soft, error)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def n_open_files() -> int | None:
    """Files that this process has open; None where the system does not say."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder)) - 1  # one was open to read the folder
        except OSError:
            continue
    return None


def shm_mb(folder: Path = SHM) -> tuple[float, float] | None:
    """Free and total megabytes of shared memory; None where there is no such folder."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return usage.free / 2**20, usage.total / 2**20


def is_full() -> bool:
    """Whether there is no room for one more small file, as a lock is one."""
    space = shm_mb()
    return space is not None and space[0] < ONE_LOCK_MB


def full_text() -> str | None:
    """What to say of an error for want of space, with what is there now and the cure; None where there is no such."""
    space = shm_mb()
    return (
        None
        if space is None
        else f"{SHM} is full, {size_text(space[0])} of its {size_text(space[1])} are free; {SMALLER}"
    )


def shared_memory_problem(*, batch_mb: float, prefetch: int, workers: int, ranks: int, free_mb: float) -> str | None:
    """What to warn of before the start, or None when batches under way will fit.

    Args:
        batch_mb: Size of one batch as it leaves a worker.
        prefetch: Batches that each worker makes ahead.
        workers: Workers of each rank, those for evaluation too.
        ranks: Ranks on this machine.
        free_mb: Free shared memory.
    """
    # One more batch per rank: the one that is being trained on still lies there.
    n_batches = ranks * (workers * prefetch + 1) if workers else 0
    needed = batch_mb * n_batches
    if needed <= free_mb * USABLE_SHARE:
        return None
    return (
        f"shared memory ({SHM}): {size_text(free_mb)} are free, batches under way may need {size_text(needed)} "
        f"({size_text(batch_mb)} x {n_batches}: prefetch {prefetch} x {workers} workers x {ranks} ranks, 1 in use "
        f"each); "
        f"a worker that finds it full ends the run: {SMALLER}"
    )


def open_files_problem(*, n_open: int, file_limit: int) -> str | None:
    """What to warn of when the open files come near their limit, or None."""
    if n_open < file_limit * NEARLY_FULL:
        return None
    return (
        f"open files: {n_open} of {file_limit} (ulimit -n); tensors kept from loader workers hold one each: "
        "keep copies (tensor.clone()), set managers.tensor.sharing_strategy=file_system, or raise the limit"
    )
