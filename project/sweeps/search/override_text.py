"""Typed values as texts of Hydra's override grammar, which its parser reads back as exactly the same values."""

import re
from collections.abc import Mapping
from typing import Any

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NO_WORDS = frozenset({"null", "true", "false", "inf", "nan"})  # in any case
_INTERPOLATION = re.compile(r"(\\*)\$\{")


def as_text(value: Any) -> str:
    """What stands behind the `=` of an override. Strings mean what they mean in a YAML file: `${…}` interpolates."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(float(value)) if isinstance(value, float) else str(int(value))
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_dict_key(key)}:{as_text(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(as_text, value)) + "]"
    raise TypeError(f"{value!r} is neither a string, a number, a boolean, null, a list nor a dict")


def literal(value: Any) -> Any:
    """The same value with `${` escaped in strings, so that no interpolation is seen in what is none."""
    if isinstance(value, str):
        return _INTERPOLATION.sub(lambda match: 2 * match[1] + r"\${", value)
    return value


def _string(text: str) -> str:
    if _WORD.fullmatch(text) and text.lower() not in _NO_WORDS:
        return text
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text, Quote.single).with_quotes()


def _dict_key(key: Any) -> str:
    # The grammar allows no quotes here.
    from hydra.core.override_parser.types import Override

    return Override._get_value_element_as_str(key)
