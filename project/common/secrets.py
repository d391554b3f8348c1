"""What must never be written down or shown: one list of names, applied wherever text or configuration leaves a process."""

import re
from typing import Any

MASK = "***"
SECRET_NAME = re.compile(
    r"(^|_|\.)(password|passwd|pwd|secret|token|api_?key|access_?key|private_?key|credentials?)$", re.IGNORECASE
)
_URL_PASSWORD = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://[^/\s:@]*:)[^@\s/]+(?=@)", re.IGNORECASE)
_QUERY_PASSWORD = re.compile(r"(?P<before>[?&](?:ssl)?password=)[^&\s'\"]+", re.IGNORECASE)


def mask_text(text: str) -> str:
    """Passwords in addresses replaced, in the part before the host and in the query."""
    text = _URL_PASSWORD.sub(lambda match: match["before"] + MASK, text)
    return _QUERY_PASSWORD.sub(lambda match: match["before"] + MASK, text)


def mask_config(value: Any) -> Any:
    """A copy of plain data in which the values of secret names, and passwords in addresses, are replaced."""
    if isinstance(value, dict):
        return {key: _mask_item(key, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask_config(item) for item in value]
    return mask_text(value) if isinstance(value, str) else value


def _mask_item(key: Any, item: Any) -> Any:
    if isinstance(key, str) and SECRET_NAME.search(key) and isinstance(item, str) and item:
        return MASK
    return mask_config(item)


def mask_override(override: str) -> str:
    """An override as typed, `key=value`, masked by the same rules."""
    key, separator, value = override.partition("=")
    if separator and SECRET_NAME.search(key.lstrip("+~")):
        return f"{key}={MASK}"
    return mask_text(override)
