"""A configuration as plain data: the only form in which it is compared, checked and handed to another process."""

from collections.abc import Iterator, Mapping
from typing import Any

from project.common.errors import ConfigError

_ABSENT = object()


def as_plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns dicts, lists and plain values only, interpolations resolved; a copy, which nobody else can change."""
    plain = _convert(config)
    if not isinstance(plain, dict):
        raise ConfigError(f"config: {type(config).__name__} has no keys; use a dict or a DictConfig")
    return plain


def _convert(value: Any) -> Any:
    # OmegaConf's containers have this method; plain data is no reason to import it.
    if hasattr(value, "_get_node"):
        from omegaconf import OmegaConf

        return OmegaConf.to_container(value, resolve=True)
    if isinstance(value, Mapping):
        return {key: _convert(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_convert(child) for child in value]
    return value


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
