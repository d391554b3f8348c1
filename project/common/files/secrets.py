"""What must never be written down or shown: one list of names, applied wherever text or configuration leaves us."""

import os
import re
from typing import Any

MASK = "***"
SECRET_NAME = re.compile(
    r"(^|_|\.)(password|passwd|pwd|secret|token|api_?key|access_?key|private_?key|credentials?)$", re.IGNORECASE
)
# Tokens of a vocabulary are no secrets.
_VOCABULARY_NAME = re.compile(r"(^|_|\.)(pad|unk|mask|cls|sep|bos|eos|sot|eot|special|start|end)_token$", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]{0,30}://[^/\s:@]*:)[^@\s/]+(?=@)", re.IGNORECASE)
_QUERY_PASSWORD = re.compile(r"(?P<before>[?&](?:ssl)?password=)[^&\s'\"]+", re.IGNORECASE)
# `{token: x}` within an override, whose own name says nothing.
_NESTED = re.compile(r"(?P<key>[\w./@+-]+)(?P<colon>['\"]?\s*:\s*)(?P<value>'[^']*'|\"[^\"]*\"|[^\s,{}\[\]]+)")
_NO_SECRETS = ("PWD", "OLDPWD")  # the shell's folders
_SHORTEST = 8  # a shorter value of a secret variable would mask ordinary words


def is_secret_name(name: str) -> bool:
    """Whether a key or variable of that name holds a secret."""
    return SECRET_NAME.search(name) is not None and _VOCABULARY_NAME.search(name) is None


_remembered: set[str] = set()


def remember_secrets(config: Any) -> None:
    """From now on this process masks the values of a configuration's secret names wherever they stand in a text."""
    if isinstance(config, dict):
        for key, item in config.items():
            if isinstance(item, str) and isinstance(key, str) and is_secret_name(key) and len(item) >= _SHORTEST:
                _remembered.add(item)
            remember_secrets(item)
    elif isinstance(config, list | tuple):
        for item in config:
            remember_secrets(item)


def mask_text(text: str) -> str:
    """Text without the values of secret variables and settings, and without passwords in addresses and queries."""
    for value in _remembered:
        text = text.replace(value, MASK)
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST and value in text and is_secret_name(name) and name not in _NO_SECRETS:
            text = text.replace(value, MASK)
    if "=" not in text and "://" not in text:
        return text
    text = _URL_PASSWORD.sub(lambda match: match["before"] + MASK, text)
    return _QUERY_PASSWORD.sub(lambda match: match["before"] + MASK, text)


def mask_config(value: Any) -> Any:
    """A copy of plain data in which the values of secret names, and secrets in texts, are replaced."""
    if isinstance(value, dict):
        return {key: _mask_item(key, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask_config(item) for item in value]
    return mask_text(value) if isinstance(value, str) else value


def _mask_item(key: Any, item: Any) -> Any:
    if isinstance(key, str) and is_secret_name(key) and isinstance(item, str) and item:
        return MASK
    return mask_config(item)


def mask_override(override: str) -> str:
    """An override as typed, `key=value`, masked by the same rules."""
    key, separator, _ = override.partition("=")
    if separator and is_secret_name(key.lstrip("+~")):
        return f"{key}={MASK}"
    if separator and "{" in override:
        override = _NESTED.sub(_mask_nested, override)
    return mask_text(override)


def _mask_nested(match: re.Match[str]) -> str:
    return match["key"] + match["colon"] + MASK if is_secret_name(match["key"]) else match.group()
