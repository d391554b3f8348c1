"""Writes the answers into the files that have a place for them."""

import json
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from template.answers import choices, chosen_extras


def choose(name: str, text: str, answers: Mapping[str, Any], template: Path) -> str:
    """Returns the text of the file `name` with the answers in it; each place must be there, or this raises."""
    if name == "LICENSE":
        return _licence(text, answers, template)
    places = {
        "setup.cfg": _setup,
        "README.md": _readme,
        "CHANGELOG.md": _changelog,
        "conf/config.yaml": _task,
        "conf/managers/wandb/default.yaml": _wandb,
        "Makefile": _make,
        ".github/workflows/ci.yml": _workflow,
        "environment.yml": _conda,
        "pyproject.toml": _style,
    }
    return places[name](text, answers) if name in places else text


def pythons(answers: Mapping[str, Any]) -> list[str]:
    """Returns the Pythons that the project has to run on."""
    offered = choices("python_version")
    return offered[offered.index(answers["python_version"]) :]


def _setup(text: str, answers: Mapping[str, Any]) -> str:
    text = _replace(r"^author = .*", f"author = {answers['author']}", text)
    text = _replace(r"^description = .*", f"description = {_plain(answers['project_name'])}", text)
    if answers["licence"] == "Proprietary":
        text = _replace(r"^license = .*\n", "", text)
    else:
        text = _replace(r"^license = .*", f"license = {answers['licence']}", text)
    text = _replace(r"^python_requires = .*", f"python_requires = >={answers['python_version']}", text)
    lines = "".join(f"    Programming Language :: Python :: {version}\n" for version in pythons(answers))
    return _replace(r"(?:^    Programming Language :: Python :: 3\.\d+\n)+", lines, text)


def _readme(text: str, answers: Mapping[str, Any]) -> str:
    text = _replace(r"^# project$", f"# {_plain(answers['project_name'])}", text)
    text = _replace(r"Python 3\.11 or newer", f"Python {answers['python_version']} or newer", text)
    return _replace(r"^Apache-2\.0\. (?=The)", f"{answers['licence']}. ", text)


def _changelog(text: str, _: Mapping[str, Any]) -> str:
    """The template's own history stays behind."""
    return text.partition("\n## ")[0] + "\n## Unreleased\n"


def _task(text: str, answers: Mapping[str, Any]) -> str:
    return _replace(r"^  - task: \w+", f"  - task: {answers['task']}", text)


def _make(text: str, answers: Mapping[str, Any]) -> str:
    oldest = str(answers["python_version"])
    text = _replace(r"^EXTRAS \?=$", f"EXTRAS ?= {','.join(chosen_extras(answers))}".rstrip(), text)
    text = _replace(r" template\)$", ")", text)
    return text.replace("(3, 11)", f"({oldest.replace('.', ', ')})").replace("3.11", oldest)


def _workflow(text: str, answers: Mapping[str, Any]) -> str:
    return _replace(r"python: \[.*\]", f"python: {json.dumps(pythons(answers))}", text)


def _conda(text: str, answers: Mapping[str, Any]) -> str:
    return _replace(r"python>=3\.11", f"python>={answers['python_version']}", text)


def _licence(text: str, answers: Mapping[str, Any], template: Path) -> str:
    if answers["licence"] == "Apache-2.0":
        return text
    body = (template / "template" / "licences" / f"{answers['licence']}.txt").read_text(encoding="utf-8")
    return body.replace("<YEAR>", str(date.today().year)).replace("<AUTHOR>", str(answers["author"]))


def _wandb(text: str, answers: Mapping[str, Any]) -> str:
    if answers["wandb_project"]:
        text = _replace(r"^project: \S+", f"project: {json.dumps(answers['wandb_project'])}", text)
    if answers["wandb_entity"]:
        text = _replace(r"^entity: \S+", f"entity: {json.dumps(answers['wandb_entity'])}", text)
    return text


def _style(text: str, answers: Mapping[str, Any]) -> str:
    """A longer name makes some lines longer, in strings that the formatter does not break."""
    if len(answers["package_name"]) <= len("project"):
        return text
    reason = "the formatter breaks what can be broken"
    return _replace(r"^ignore = \[$", f'ignore = [\n    "E501",         # {reason}', text)


def _plain(words: str) -> str:
    return " ".join(str(words).split())


def _replace(pattern: str, replacement: str, text: str) -> str:
    """Replaces the one place where the pattern fits."""
    text, n_places = re.subn(pattern, lambda _: replacement, text, flags=re.MULTILINE)
    if n_places != 1:
        raise ValueError(f"{pattern!r} fits {n_places} places of the template, not one")
    return text
