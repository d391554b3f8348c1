"""Checks what is about to cross into another process: refused with its path, before anything was started."""

import io
import pickle
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from project.common.errors import ProcessBoundaryError

_PLAIN = (str, bytes, int, float, bool, type(None), complex)


def check_crossing(value: Any, *, name: str, by_pickle: bool = True) -> None:
    """Raises `ProcessBoundaryError` naming the path of the first part of `value` that cannot go to a child.

    Args:
        value: What the child is to be given.
        name: What it is called in the message, such as `args`.
        by_pickle: Also try to pickle it, which finds what the walk does not know.
    """
    for path, part in _walk(value, name, seen=set()):
        reason = _refused(part)
        if reason:
            raise ProcessBoundaryError(f"{path}: {reason}")
    if by_pickle:
        _try_pickle(value, name)


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
            yield f"{path}[{key!r}]", item
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
    own_way = kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__
    return not own_way and getattr(kind, "__getstate__", None) is getattr(object, "__getstate__", None)


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


def _try_pickle(value: Any, name: str) -> None:
    try:
        pickle.dumps(value)
    except Exception as error:  # whatever an object's own pickling raises
        path = _deepest_failing(value, name)
        raise ProcessBoundaryError(
            f"{path}: cannot be pickled ({error}); give plain data and build it there"
        ) from error


def _deepest_failing(value: Any, path: str, depth: int = 0) -> str:
    if depth < 20:
        parts = list(_parts(value, path))
        if not parts and hasattr(value, "__dict__") and not isinstance(value, type):
            parts = [(f"{path}.{key}", item) for key, item in vars(value).items()]
        for child_path, child in parts:
            try:
                pickle.dumps(child)
            except Exception:  # noqa: BLE001 - it is what was looked for
                return _deepest_failing(child, child_path, depth + 1)
    return path
