"""Numbers, times and parameters in few characters, the same in the terminal, the results and the report."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from project.common.files.secrets import MASK, is_secret_name

_LONGEST_VALUE = 24


def one_line(text: str) -> str:
    """Text as one line that cannot move a terminal's cursor."""
    line = " ".join(text.split())
    return line if line.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def number(value: float | None) -> str:
    """A measured value, five digits of it; nothing for None."""
    return "" if value is None else f"{value:.5g}"


def numbers(values: Iterable[float] | None) -> str:
    """The values of a trial; several with more than one objective."""
    return ", ".join(number(value) for value in values or ())


def clock(seconds: float) -> str:
    """Time that has passed: `0:07`, `12:30`, `3:05:00`, `2 d 3:05:00`."""
    if not math.isfinite(seconds):
        return ""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{hours}:{minutes:02}:{rest:02}" if hours or days else f"{minutes}:{rest:02}"
    return f"{days} d {text}" if days else text


def about(seconds: float) -> str:
    """Time to come, no more precise than it can be known: `40 s`, `12 min`, `3 h 5 min`, `2 d 3 h`."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def params_text(params: Mapping[str, Any]) -> str:
    """Parameters in a few words: `lr=0.00123 model=big`; a key by its last part, unless two share it."""
    names = short_names(params)
    return " ".join(f"{names[key]}={MASK if is_secret_name(key) else _value(value)}" for key, value in params.items())


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Each dotted key by as few of its last parts as tell it from the others."""
    by_key = {key: key.lstrip("+").split(".") for key in keys}
    n_parts = dict.fromkeys(by_key, 1)
    while True:
        shown = {key: ".".join(parts[-n_parts[key] :]) for key, parts in by_key.items()}
        names = list(shown.values())
        longer = [key for key in by_key if names.count(shown[key]) > 1 and n_parts[key] < len(by_key[key])]
        if not longer:
            return shown
        for key in longer:
            n_parts[key] += 1


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = "null" if value is None else one_line(str(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE // 2]}…{text[-_LONGEST_VALUE // 2 + 1 :]}"
