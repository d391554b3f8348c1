"""Where a manager's setting is given: `managers.data.files` follows `task.data.files`, and people type the latter."""

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from project.common.config_files import config_root

_REFERENCE = re.compile(r"^(\w+): \$\{([\w.]+)\}", re.MULTILINE)
_ABSENT = object()


@functools.cache
def references() -> tuple[tuple[str, str], ...]:
    """Which key of a manager is taken from which other key: a resolved configuration does not show it any more."""
    root = config_root() / "managers"
    return tuple(
        (f"managers.{manager.name}.{key}", source)
        for manager in root.iterdir()
        if manager.is_dir() and (manager / "default.yaml").is_file()
        for key, source in _REFERENCE.findall((manager / "default.yaml").read_text())
    )


def as_typed(problems: Iterable[str], config: Mapping[str, Any]) -> list[str]:
    """The problems with each key as people give it, each once: what a manager follows is named in its place."""
    followed = [(key, source) for key, source in references() if _value(config, key) == _value(config, source)]
    return list(dict.fromkeys(_rename(problem, followed) for problem in problems))


def _rename(problem: str, followed: Iterable[tuple[str, str]]) -> str:
    for key, source in followed:
        if problem.startswith((f"{key}:", f"{key}.")):
            return source + problem.removeprefix(key)
    return problem


def _value(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = config.get(name, _ABSENT) if isinstance(config, Mapping) else _ABSENT
    return config
