"""The files of the configuration: which groups and choices there are, and what each says of itself first."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

_OVERRIDE = re.compile(r"^(?:override|optional)\s+")


@dataclass(frozen=True)
class Group:
    """A folder of the configuration.

    Args:
        name: As it is typed: `managers/amp`.
        choices: Each one's name and what its first comment says.
        chosen: Which one is taken when nothing is typed; None where a group only adds something: `+experiment=x`.
    """

    name: str
    choices: dict[str, str]
    chosen: str | None

    def typed(self, choice: str) -> str:
        """How a choice is made on the command line."""
        return f"{'' if self.chosen else '+'}{self.name}={choice}"


def config_root() -> Traversable:
    """Where the configuration lies: beside train.py in a checkout, in the package when installed."""
    beside = Path(__file__).resolve().parents[2] / "conf"
    return beside if beside.is_dir() else files(f"{__name__.partition('.')[0]}.conf")


def groups() -> list[Group]:
    """Every group with at least one choice, in the order of the defaults list, then by name."""
    chosen = _defaults()
    found = {name: choices for name, choices in _walk(config_root(), "") if choices}
    order = [*(name for name in chosen if name in found), *sorted(name for name in found if name not in chosen)]
    return [Group(name, found[name], chosen.get(name)) for name in order]


def text_of(group: str, choice: str) -> str:
    """A choice's file, comments and all."""
    return config_root().joinpath(*group.split("/"), f"{choice}.yaml").read_text(encoding="utf-8")


def _defaults() -> dict[str, str]:
    """Group and choice of each line of the defaults list; also where nothing is chosen."""
    import yaml

    lines: list[Any] = yaml.safe_load(config_root().joinpath("config.yaml").read_text(encoding="utf-8"))["defaults"]
    pairs = (pair for line in lines if isinstance(line, dict) for pair in line.items())
    return {_OVERRIDE.sub("", group): "null" if choice is None else str(choice) for group, choice in pairs}


def _walk(folder: Traversable, name: str) -> Iterator[tuple[str, dict[str, str]]]:
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    if name:
        yaml_files = [entry for entry in entries if entry.name.endswith(".yaml")]
        yield name, {entry.name.removesuffix(".yaml"): _first_comment(entry) for entry in yaml_files}
    for entry in entries:
        if entry.is_dir() and not entry.name.startswith(("_", ".")):
            yield from _walk(entry, f"{name}/{entry.name}".lstrip("/"))


def _first_comment(file: Traversable) -> str:
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and not line.startswith("# @package"):
            return line.lstrip("# ")
    return ""
