"""What grew between two moments: tensors, shared memory, open files, and objects that only reference cycles keep."""

import ctypes
import gc
import os
import re
import site
import sys
import tracemalloc
import weakref
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANY_OBJECTS = 100  # cycles of fewer objects are everyday Python
VARIABLE_PART = re.compile(r":\[\d+\]|torch_.*")  # of a descriptor's target: the number of a pipe, a random name
LIBRARIES = tuple({*site.getsitepackages(), str(Path(os.__file__).parent)})


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Things of one kind that were not there at the mark.

    Args:
        kind: tensors, shared memory, open files or cycles.
        where: Where they were made, when allocations are traced; otherwise who holds one of them.
    """

    kind: str
    what: str
    count: int
    mb: float
    where: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.count} x {self.what}, {self.mb:,.1f} MB, {self.where}"


@dataclass(frozen=True)
class LeakReport:
    """All that grew, largest first; false when nothing did."""

    growths: tuple[Growth, ...]

    def __bool__(self) -> bool:
        return bool(self.growths)

    def __str__(self) -> str:
        return "\n".join(map(str, self.growths)) or "nothing grew"


class LeakTracker:
    """Compares this process with a mark.

    Args:
        n_frames: Depth of the traces that say where something was made (`tracemalloc`, slows Python down); 0 for none.
    """

    def __init__(self, *, n_frames: int = 0) -> None:
        self._n_frames = n_frames
        self._has_started_tracing = False
        self._tensors: dict[int, weakref.ref[Any]] = {}
        self._segments: dict[str, float] = {}
        self._files: dict[str, str] = {}
        self.is_marked = False

    def mark(self) -> None:
        """Remembers what is there now; what comes later counts as growth."""
        if self._n_frames and not tracemalloc.is_tracing():
            tracemalloc.start(self._n_frames)
            self._has_started_tracing = True
        gc.collect()
        self._tensors = {id(tensor): weakref.ref(tensor) for tensor in live_tensors()}
        self._segments, self._files = shared_segments(), open_files()
        self.is_marked = True

    def report(self) -> LeakReport:
        """What grew since the mark, after collecting garbage."""
        growths = _cycles()
        growths += _group("tensors", [t for t in live_tensors() if not self._was_there(t)])
        growths += _new_segments(self._segments, shared_segments())
        growths += _new_files(self._files, open_files())
        return LeakReport(tuple(sorted(growths, key=lambda growth: (growth.mb, growth.count), reverse=True)))

    def stop(self) -> None:
        """Forgets the mark, and ends the tracing that it began."""
        self._tensors, self._segments, self._files, self.is_marked = {}, {}, {}, False
        if self._has_started_tracing:
            tracemalloc.stop()
            self._has_started_tracing = False

    def _was_there(self, tensor: Any) -> bool:
        """Compares the object too: addresses are used again."""
        reference = self._tensors.get(id(tensor))
        return reference is not None and reference() is tensor


def live_tensors() -> list[Any]:
    """Tensors that Python knows of in this process."""
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    return [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)]


def shared_segments() -> dict[str, float]:
    """Shared memory that this process has mapped, in MB; also what has no name any more."""
    segments: dict[str, float] = {}
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return {}
    for line in lines:
        found = re.match(r"([0-9a-f]+)-([0-9a-f]+) .*? (/dev/shm/.*)", line)
        if found:
            segments[f"{found[3]} at {found[1]}"] = (int(found[2], 16) - int(found[1], 16)) / 2**20
    return segments


def open_files() -> dict[str, str]:
    """Descriptors of this process and what they lead to."""
    found: dict[str, str] = {}
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return {}
    for name in names:
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the one that was open to list them
    return found


def where_made(item: Any) -> str | None:
    """`file:line` of the innermost own code that made `item`; None when its making was not traced."""
    frames = _traced_frames(item)
    own = [frame for frame in frames if not frame[0].startswith((*LIBRARIES, "<"))]
    for file, line in own or frames:
        return f"made at {file}:{line}"
    return None


def _traced_frames(item: Any) -> list[tuple[str, int]]:
    """Innermost first."""
    traceback = tracemalloc.get_object_traceback(item)
    if traceback is not None:
        return [(frame.filename, frame.lineno) for frame in reversed(traceback)]
    # Up to 3.11 the standard function looks at the wrong address of objects that have a __dict__ of their own.
    lookup = getattr(ctypes.pythonapi, "_PyTraceMalloc_GetTraceback", None) if sys.version_info < (3, 12) else None
    if lookup is None or not tracemalloc.is_tracing():
        return []
    lookup.restype, lookup.argtypes = ctypes.py_object, [ctypes.c_uint, ctypes.c_void_p]
    header = 4 * ctypes.sizeof(ctypes.c_void_p)
    return list(lookup(0, id(item) - header) or [])


def _cycles() -> list[Growth]:
    """Objects that the collector found in cycles just now; they are gone afterwards."""
    flags, kept = gc.get_debug(), len(gc.garbage)
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
    finally:
        gc.set_debug(flags)
    found = gc.garbage[kept:]
    del gc.garbage[kept:]
    growths = _group("cycles", _only_tensors(found), holder="held by a cycle")
    if len(found) >= MANY_OBJECTS:
        growths += _most_frequent(found)
    del found
    gc.collect()
    return growths


def _only_tensors(items: Iterable[Any]) -> list[Any]:
    torch = sys.modules.get("torch")
    return [] if torch is None else [item for item in items if issubclass(type(item), torch.Tensor)]


def _most_frequent(items: list[Any]) -> list[Growth]:
    by_type = defaultdict(list)
    for item in items:
        by_type[type(item)].append(item)
    largest = sorted(by_type.items(), key=lambda pair: len(pair[1]), reverse=True)[:3]
    return [
        Growth(
            kind="cycles",
            what=kind.__qualname__,
            count=len(of_kind),
            mb=0.0,
            where=_where(of_kind[0], holder="held by a cycle"),
        )
        for kind, of_kind in largest
    ]


def _group(kind: str, tensors: list[Any], *, holder: str | None = None) -> list[Growth]:
    groups: dict[tuple[str, str | None], list[Any]] = defaultdict(list)
    for tensor in tensors:
        what = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)} on {tensor.device}"
        groups[what, where_made(tensor)].append(tensor)
    return [
        Growth(
            kind=kind,
            what=what,
            count=len(items),
            mb=_storage_mb(items),
            where=_where(items[0], tensors, items, holder=holder),
        )
        for (what, _), items in groups.items()
    ]


def _storage_mb(tensors: list[Any]) -> float:
    """Views share one storage, which counts once."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        try:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        except (RuntimeError, NotImplementedError):
            continue  # tensors without memory: meta, fake, sparse
    return sum(sizes.values()) / 2**20


def _where(item: Any, *own_lists: list[Any], holder: str | None = None) -> str:
    return where_made(item) or holder or _holder(item, own_lists) or "holder unknown"


def _holder(item: Any, own_lists: tuple[list[Any], ...]) -> str | None:
    for holder in gc.get_referrers(item):
        if any(holder is mine for mine in own_lists) or type(holder).__name__ == "frame":
            continue
        if not isinstance(holder, list | tuple | dict | set):
            return f"held by a {type(holder).__qualname__}"
        if len(holder) > 1 or not isinstance(holder, tuple):
            return f"held by a {type(holder).__qualname__} of {len(holder)}"
    return None


def _new_segments(before: dict[str, float], now: dict[str, float]) -> list[Growth]:
    new = [mb for name, mb in now.items() if name not in before]
    example = next((name for name in now if name not in before), "")
    where = f"such as {example}"
    return [Growth(kind="shared memory", what="segment", count=len(new), mb=sum(new), where=where)] if new else []


def _new_files(before: dict[str, str], now: dict[str, str]) -> list[Growth]:
    groups: dict[str, list[str]] = defaultdict(list)
    for number, target in now.items():
        if before.get(number) != target:
            groups[VARIABLE_PART.sub("", target)].append(number)
    return [
        Growth(kind="open files", what=what, count=len(numbers), mb=0.0, where=f"such as descriptor {numbers[0]}")
        for what, numbers in groups.items()
    ]
