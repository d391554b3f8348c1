"""The exclusive section of a study: one process at a time counts and claims trials, or closes and clones them."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from project.sweeps.study.patience import Patience
from project.sweeps.study.section_locks import Lock

log = logging.getLogger(__name__)

_POLL_S = 0.02
_REMIND_S = 30.0


class Section:
    """The section itself; its holder may enter it again.

    Args:
        lock: What makes it exclusive.
        patience: How long to wait for another process.
    """

    def __init__(self, lock: Lock, patience: Patience) -> None:
        self._lock, self._patience, self._depth = lock, patience, 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Waits until no other process is in it, and keeps them out.

        Raises:
            StorageLostError: Another process stayed in it for too long.
        """
        if self._depth == 0:
            self._wait()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._lock.release()

    def check(self) -> None:
        """Raises `SectionLostError` when others can be in it too."""
        self._lock.check()

    def close(self) -> None:
        """Gives up what the lock needs."""
        self._lock.close()

    def _wait(self) -> None:
        since, reminded = time.monotonic(), 0.0
        while not self._lock.acquire():
            waited = time.monotonic() - since
            if self._patience.left(since) <= 0:
                raise self._patience.lost(f"was kept locked by another process for {waited:.0f} s")
            if waited - reminded >= _REMIND_S:
                reminded = waited
                log.warning("waiting for another process that has the study locked (%.0f s so far)", waited)
            self._patience.pause(_POLL_S)
