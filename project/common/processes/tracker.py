"""What this process tells the resource tracker of its tree, also when that one was killed and another took over."""

import warnings
from multiprocessing import resource_tracker
from typing import Any


def forget_semaphore(name: str) -> None:
    """Tells the resource tracker of this tree that a semaphore is gone, or it would report it as leaked at the end."""
    resource_tracker.unregister(name, "semaphore")


_standard_unregister: Any = resource_tracker.unregister


def bear_a_lost_one() -> None:
    """Lets this process go on quietly when the resource tracker was killed: the standard library starts another.

    That one knows nothing of what there was before, and prints a traceback for each name that is taken back.
    """
    resource_tracker.unregister = _unregister  # type: ignore[assignment]
    warnings.filterwarnings("ignore", message="resource_tracker: process died unexpectedly")


def _unregister(name: str, kind: str) -> None:
    resource_tracker.register(name, kind)  # a set: what it knows already stays there once
    _standard_unregister(name, kind)
