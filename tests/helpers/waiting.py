"""Waiting for events: every wait has a deadline and says what it waited for."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T | None], deadline_s: float = 5.0, *, what: str | Callable[[], str] = "") -> T:
    """The first truthy value of `condition`; fails after `deadline_s`, and says `what` it waited for."""
    deadline = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            said = what() if callable(what) else what
            raise AssertionError(f"not within {deadline_s:g} s: {said or condition}")
        time.sleep(0.01)
