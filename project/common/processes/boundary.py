"""Checks what is about to cross into another process: refused with its path, before anything was started."""

import io
import sys
import types
from collections.abc import Iterator, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any

from project.common.errors import ProcessBoundaryError

_DEEPEST = 20
_PICKLING = ("__reduce__", "__reduce_ex__", "__getstate__")
_PLAIN = (str, bytes, int, float, bool, type(None), complex)


def check_crossing(value: Any, *, name: str) -> None:
    """Raises `ProcessBoundaryError` naming the path of the first part of `value` that must not go to a child.

    Args:
        value: What the child is to be given.
        name: What it is called in the message, such as `config`; empty for a dict of arguments, named by its keys.
    """
    for path, part in _walk(value, name, seen=set()):
        reason = _refused(part)
        if reason:
            raise ProcessBoundaryError(f"{path}: {reason}")


def not_picklable(given: dict[str, Any], error: Exception) -> ProcessBoundaryError:
    """The error for arguments that pickle refused, naming the path of the part to blame. Call it while starting."""
    for name, value in given.items():
        path, part = _deepest_failing(value, name)
        if path is not None:
            reason = _refused(part) or f"cannot be pickled ({error}); give plain data and build it there"
            return ProcessBoundaryError(f"{path}: {reason}")
    return ProcessBoundaryError(f"arguments: cannot be pickled ({error}); give plain data and build it there")


def _walk(value: Any, path: str, *, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, _PLAIN) or id(value) in seen:
        return
    seen.add(id(value))
    yield path, value
    for child_path, child in _parts(value, path):
        yield from _walk(child, child_path, seen=seen)


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and type(value).__module__ in ("builtins", "collections"):
        for key, item in value.items():
            yield (f"{path}[{key!r}]" if path else str(key)), item
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            yield f"{path}[{index}]", item
    elif _is_user_object(value):
        for key, item in vars(value).items():
            yield f"{path}.{key}", item


def _is_user_object(value: Any) -> bool:
    """Objects whose pickle is their attributes; what pickles itself in its own way is not looked into."""
    kind = type(value)
    if isinstance(value, type | types.ModuleType | types.FunctionType) or not hasattr(value, "__dict__"):
        return False
    own = (getattr(kind, name) for name in _PICKLING)
    return all(mine is standard for mine, standard in zip(own, (getattr(object, n) for n in _PICKLING), strict=True))


def _refused(value: Any) -> str | None:
    if isinstance(value, types.FunctionType):
        return _refused_function(value)
    if isinstance(value, types.GeneratorType):
        return "a generator belongs to the process that runs it; give a function that makes one"
    if isinstance(value, io.IOBase):
        return "an open file cannot cross; give its path and open it there"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__} cannot cross; import it there"
    return _refused_tensor(value) or _refused_ours(value)


def _refused_function(value: types.FunctionType) -> str | None:
    if value.__name__ == "<lambda>":
        return "a lambda cannot cross; define a function at module level"
    if "<locals>" in value.__qualname__:
        return f"{value.__qualname__} is defined inside a function; move it to module level"
    return None


def _refused_tensor(value: Any) -> str | None:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            return f"a tensor on {value.device} cannot cross; use to_cpu() first, or build it there"
        if value.is_shared():
            return "a shared tensor would tie the processes together; clone it, or give a path to map"
    if isinstance(value, torch.nn.Module):
        return "a model is never handed over; build it there from the configuration"
    return None


def _refused_ours(value: Any) -> str | None:
    for kind in type(value).__mro__:
        if kind.__module__.startswith("project.common") and kind.__name__ in ("BaseManager", "Container"):
            return f"{type(value).__name__} belongs to the process that built it; call ensure_process_initialized there"
    return None


def _fails(value: Any) -> bool:
    try:
        ForkingPickler.dumps(value)
    except Exception:  # noqa: BLE001 - whatever an object's own pickling raises
        return True
    return False


def _deepest_failing(value: Any, path: str, depth: int = 0) -> tuple[str | None, Any]:
    if not _fails(value):
        return None, value
    parts = list(_parts(value, path))
    if not parts and hasattr(value, "__dict__") and not isinstance(value, type | types.FunctionType):
        parts = [(f"{path}.{key}", item) for key, item in vars(value).items()]
    for child_path, child in parts if depth < _DEEPEST else ():
        found, part = _deepest_failing(child, child_path, depth + 1)
        if found is not None:
            return found, part
    return path, value
