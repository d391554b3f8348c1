"""A part of the suite for each of several sessions that run side by side: whole files, of about the same length."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

SLOW_ITEM = 30  # as long as so many quick ones


def chosen(items: Sequence[Any], part: str) -> list[Any]:
    """The items of one part, such as `1/2`; every item is in exactly one.

    Args:
        items: pytest's, whole files of which stay together, since they share fixtures.
        part: Which of how many.

    Raises:
        ValueError: It is no such part.
    """
    number, _, n_parts = part.partition("/")
    if not (number.isdecimal() and n_parts.isdecimal() and 1 <= int(number) <= int(n_parts)):
        raise ValueError(f"--part: {part!r}; give one such as 1/2")
    dealt = _dealt(items, int(n_parts))
    return [item for item in items if dealt[item.path] == int(number) - 1]


def _dealt(items: Sequence[Any], n_parts: int) -> dict[Any, int]:
    """The longest file first, each to the part that has least."""
    weights: dict[Any, int] = defaultdict(int)
    for item in items:
        weights[item.path] += SLOW_ITEM if item.get_closest_marker("slow") else 1
    loads = [0] * n_parts
    dealt = {}
    for path, weight in sorted(weights.items(), key=lambda entry: (-entry[1], str(entry[0]))):
        dealt[path] = loads.index(min(loads))
        loads[dealt[path]] += weight
    return dealt
