"""A configuration as plain data: the only form in which it is compared, checked and handed to another process."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

_ABSENT = object()


def as_plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns dicts, lists and plain values only, interpolations resolved; a copy, which nobody else can change."""
    # OmegaConf's containers have this method; a plain dict is no reason to import it.
    if hasattr(config, "_get_node"):
        from omegaconf import OmegaConf

        return dict(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]
    return copy.deepcopy(dict(config))


def differences(one: Any, other: Any, key: str = "") -> Iterator[str]:
    """Yields `key: value in one, not value in other` for each leaf in which two plain configurations differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys((*one, *other)):
            path = f"{key}.{name}" if key else str(name)
            yield from differences(one.get(name, _ABSENT), other.get(name, _ABSENT), path)
    elif one != other:
        yield f"{key}: {_show(one)}, not {_show(other)}"


def _show(value: Any) -> str:
    return "absent" if value is _ABSENT else repr(value)
