"""What a checkpoint may hold so that it can be loaded where nothing but tensors and plain containers is."""

import sys
from enum import Enum
from pathlib import PurePath
from typing import Any


def as_loadable(value: Any) -> Any:
    """Paths as text, members of an enumeration as their values, numbers of NumPy as Python's; all else as it is.

    They get into a checkpoint by the state of somebody's callback or scheduler, and loading would refuse all of it. A
    container in which nothing had to be changed is returned itself, with whatever it carries besides its items.
    """
    numpy = sys.modules.get("numpy")
    if isinstance(value, Enum):  # first: it may be a number or text, too
        return as_loadable(value.value)
    if isinstance(value, PurePath):
        return str(value)
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, dict):
        pairs = [(as_loadable(key), as_loadable(item)) for key, item in value.items()]
        is_same = all(a is key and b is item for (a, b), (key, item) in zip(pairs, value.items(), strict=True))
        return value if is_same else dict(pairs)
    if type(value) in (list, tuple):
        items = [as_loadable(item) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else type(value)(items)
    return value
