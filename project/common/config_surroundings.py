"""What a configuration meets outside: the file system that takes its name, variables of the environment."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from project.common.config_shape import section

_UNSUITABLE = re.compile(r'[<>:"/\\|?*\x00-\x1f]|^\.*$|^[ ]|[. ]$')
_LONGEST_NAME = 200  # bytes; file systems take 255
THREADS = "OMP_NUM_THREADS"


def name_problem(name: str) -> str | None:
    """Why `name` cannot be a run's, which is a folder's; None if it can. Stricter systems than this one may read it."""
    if not _UNSUITABLE.search(name) and len(name.encode()) <= _LONGEST_NAME:
        return None
    return f"name: {name!r:.60} cannot be a folder's name; use letters, digits, '-', '_' and '.'"


def wished_threads() -> str:
    """What the environment says of compute threads; a list goes by levels of nesting, and the first level counts."""
    return os.environ.get(THREADS, "").partition(",")[0].strip()


def check_surroundings(config: Mapping[str, Any]) -> Iterator[str]:
    """A name that no folder can have, and a number of threads that is none."""
    name = config.get("name", "???")
    if not isinstance(name, str):
        yield f"name: {name!r} does not fit; use text"
    elif name != "???" and (problem := name_problem(name)):
        yield problem
    wished = wished_threads()
    decides = section(config, "processes").get("threads") == "auto"
    if decides and wished and not (wished.isdecimal() and int(wished)):
        yield f"{THREADS}: {wished!r} is no number of threads; unset it, or use a whole number, at least 1"
