"""Leases of devices: who of several parallel trials may use which device now."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from project.common.errors import ConfigError, ProjectError
from project.common.processes import stop
from project.common.processes.tree_folder import machine_folder

if TYPE_CHECKING:
    from filelock import BaseFileLock

PACKAGE = __name__.partition(".")[0]
POLL_S = 0.1
CHOOSING_LIMIT_S = 10.0


@dataclass
class Lease:
    """Devices that nobody else gets until `release()`, or until this process ends. A context manager."""

    devices: tuple[str, ...]
    locks: list["BaseFileLock"] = field(repr=False)

    def release(self) -> None:
        """Gives the devices back; may be called again, and from another thread."""
        while self.locks:
            self.locks.pop().release(force=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class DeviceLeases:
    """Leases the devices of one pool to parallel trials, also over several sweeps of this user on this machine.

    A lease is a set of file locks of the process that asked: it vanishes with the process, however that ends.

    Args:
        pool: Names of the devices as `CUDA_VISIBLE_DEVICES` takes them, each once. On the CPU any names will do.
        per_trial: How many devices each trial gets.
        folder: Where the locks are, on a disk of this machine; None for a folder of this user in the temporary one.
    """

    def __init__(self, pool: Sequence[str], per_trial: int = 1, *, folder: Path | None = None) -> None:
        names = [str(name) for name in pool]
        if len(set(names)) != len(names):
            raise ConfigError(f"managers.cuda.pool: {names} names a device twice; name each once")
        if not 1 <= per_trial <= len(names):
            raise ConfigError(
                f"trainer.devices: a trial needs {per_trial} devices, the pool has {len(names)} ({', '.join(names)}); "
                "use fewer devices for each trial, or a larger managers.cuda.pool"
            )
        self.pool, self.per_trial = names, per_trial
        user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
        self.folder = folder or machine_folder() / f"{PACKAGE}-devices-{user}"

    @property
    def n_parallel(self) -> int:
        """How many trials can have devices at once."""
        return len(self.pool) // self.per_trial

    def try_acquire(self) -> Lease | None:
        """A lease, or None when too few devices are free now."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # One process chooses at a time: two that each hold half of what they need would wait for ever.
        choosing = self._lock(".choosing", timeout_s=CHOOSING_LIMIT_S)
        try:
            lease = Lease((), [])
            for name in self.pool:
                self._try_add(lease, name)
                if len(lease.devices) == self.per_trial:
                    return lease
            lease.release()
            return None
        finally:
            choosing.release()

    def acquire(self, *, timeout_s: float) -> Lease:
        """Waits for a lease; obeys requests to stop.

        Raises:
            ProjectError: When no device gets free in time.
        """
        deadline = time.monotonic() + timeout_s
        while (lease := self.try_acquire()) is None:
            stop.raise_if_stop_requested()
            if time.monotonic() > deadline:
                raise ProjectError(
                    f"devices {', '.join(self.pool)}: fewer than {self.per_trial} got free within {timeout_s:.0f} s; "
                    f"their holders keep the locks in {self.folder}"
                )
            time.sleep(POLL_S)
        return lease

    def _try_add(self, lease: Lease, name: str) -> None:
        from filelock import Timeout

        try:
            lease.locks.append(self._lock(name, timeout_s=0.0))
        except Timeout:
            return
        lease.devices += (name,)

    def _lock(self, name: str, *, timeout_s: float) -> "BaseFileLock":
        from filelock import FileLock

        # Not bound to a thread: the thread that watches a trial gives its devices back.
        lock = FileLock(self.folder / f"{quote(name, safe='')}.lock", thread_local=False)
        lock.acquire(timeout=timeout_s)
        return lock
