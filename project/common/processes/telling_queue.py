"""The queue by which a DataLoader's worker hands over its batches: one that cannot be sent is told.

The standard library prints a traceback and drops the batch, for which the rank then waits for ever.
"""

import logging
import os
from multiprocessing.queues import Queue
from typing import Any

from project.common import process_registry
from project.common.devices import shared_memory
from project.common.errors import ProcessBoundaryError
from project.common.processes.outcome import outcome_of

log = logging.getLogger(__name__)

_NO_SPACE = "No space left on device"


class TellingQueue(Queue):  # type: ignore[type-arg]
    """Ends its process, with the cause as its outcome, when what was put into it cannot be sent."""

    def _on_queue_feeder_error(self, error: Exception, obj: Any) -> None:
        told = ProcessBoundaryError(f"a batch could not be sent: {_described(error)}")
        told.__cause__ = error
        log.error("%s", told, extra={"terminal": False}, exc_info=error)
        process_registry.finish(outcome_of(told))
        os._exit(1)


def _described(error: Exception) -> str:
    full = shared_memory.full_text() if _NO_SPACE in str(error) else None
    return full or f"{type(error).__name__}: {error}"
