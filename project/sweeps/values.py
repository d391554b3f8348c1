"""What a task function returned, as the numbers that a study optimises, or in words why it is none."""

import math
from collections.abc import Sequence
from typing import Any

_ARRAYS = ("numpy", "torch")  # by name: this process imports neither


def objectives(value: Any, names: list[str]) -> tuple[list[float] | None, str | None]:
    """The objectives' values, or why they are none.

    Args:
        value: A number, or a list, tuple, array or tensor of as many as there are names.
        names: Of the objectives.
    """
    value = plain(value)
    given = list(value) if isinstance(value, list | tuple) or _is_other_sequence(value) else [value]
    if len(given) != len(names):
        return None, f"returned {len(given)} values for {len(names)} metrics ({', '.join(names)})"
    values = []
    for name, one in zip(names, given, strict=True):
        number, problem = _number(name, one)
        if number is None:
            return None, problem
        values.append(number)
    return values, None


def plain(value: Any) -> Any:
    """Without arrays, tensors and their scalars, which become numbers and lists; anything else stays as it is."""
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if any(kind.__module__.partition(".")[0] in _ARRAYS for kind in type(value).__mro__):
        try:
            return value.tolist()
        except Exception:  # noqa: BLE001 - a tensor without values, as on `meta`: refused as what it is
            return value
    return value


def _is_other_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _number(name: str, one: Any) -> tuple[float | None, str | None]:
    try:
        number = math.nan if isinstance(one, str | bytes | bytearray | bool) else float(one)
    except OverflowError:
        number = math.inf
    except Exception:  # noqa: BLE001 - whatever a foreign object's own conversion raises
        return None, f"{name} is {_shown(one)} ({type(one).__name__}), which is no number"
    if not math.isfinite(number):
        return None, f"{name} is {_shown(one)}, which is no value to optimise"
    return number, None


def _shown(one: Any) -> str:
    try:
        text = repr(one)
    except Exception:  # noqa: BLE001 - more digits than Python prints, or a foreign object's own error
        return "an object that cannot be shown"
    return text if len(text) <= 100 else f"{text[:100]}…"
