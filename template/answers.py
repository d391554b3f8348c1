"""Which answers give a working project."""

import json
import keyword
import re
import sys
from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LONGEST_PACKAGE = 40  # it stands in names of sockets and semaphores, whose lengths are limited
# Folders beside the package, and what Python or pytest would import in its place.
TAKEN = {
    "conf",
    "tests",
    "test",
    "docs",
    "benchmarks",
    "notebooks",
    "train",
    "eval",
    "predict",
    "runs",
    "sweeps",
    "template",
}


def problems(answers: Mapping[str, Any]) -> list[str]:
    """Returns one sentence per answer that will not do."""
    checks = {
        "project_name": lambda text: _line(text, 80),
        "repo_name": _repo_name,
        "package_name": _package_name,
        "author": lambda text: _line(text, 120),
        "wandb_entity": _wandb_name,
        "wandb_project": _wandb_name,
        "extras": lambda _: _extras(answers),
        "task": lambda text: _choice(text, tasks()),
        "licence": lambda text: _choice(text, choices("licence")),
        "python_version": lambda text: _choice(text, choices("python_version")),
    }
    found = ((name, check(str(answers[name]))) for name, check in checks.items())
    return [f"{name}: {str(answers[name])!r} {fault}" for name, fault in found if fault]


def tasks() -> dict[str, Any]:
    """Returns which files and extras belong to one task only, by task; all other files are in each project."""
    content: dict[str, Any] = json.loads((HERE / "tasks.json").read_text(encoding="utf-8"))
    return content


def choices(question: str) -> list[str]:
    """Returns what may be answered to a question of cookiecutter.json."""
    questions = json.loads((HERE.parent / "cookiecutter.json").read_text(encoding="utf-8"))
    answers: list[str] = questions[question]
    return answers


def chosen_extras(answers: Mapping[str, Any]) -> list[str]:
    """Returns the extras that were asked for and those that the task needs."""
    asked = [word for word in re.split(r"[,\s]+", str(answers["extras"])) if word]
    return list(dict.fromkeys([*asked, *tasks()[answers["task"]]["extras"]]))


def _line(text: str, longest: int) -> str | None:
    if not text.strip():
        return "is empty; give a name"
    if len(text) > longest or not text.isprintable():
        return f"is not one line of at most {longest} characters"
    return None


def _repo_name(name: str) -> str | None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        return "is no name for a folder; use up to 64 letters, digits, dots, dashes and underscores"
    return None


def _package_name(name: str) -> str | None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        return "cannot be imported by Python; use small letters a-z, digits and underscores, with a letter first"
    if len(name) > LONGEST_PACKAGE:
        return f"has {len(name)} letters; use at most {LONGEST_PACKAGE}"
    if keyword.iskeyword(name):
        return "is a word of the language Python; choose another"
    if name in sys.stdlib_module_names or name in sys.builtin_module_names:
        return "would hide a module of Python's standard library; choose another"
    if name in TAKEN:
        return "would hide a folder or module beside the package; choose another"
    if name in (HERE / "import_names.txt").read_text(encoding="utf-8").split():
        return "would hide a package that the project needs; choose another"
    return None


def _wandb_name(name: str) -> str | None:
    if not re.fullmatch(r"[\w.-]{0,128}", name, re.ASCII):
        return "is no name in W&B; use letters, digits, dots, dashes and underscores, or nothing"
    return None


def _choice(text: str, possible: Any) -> str | None:
    return None if text in possible else f"is not one of {', '.join(possible)}"


def _extras(answers: Mapping[str, Any]) -> str | None:
    settings = ConfigParser(interpolation=None)
    settings.read(HERE.parent / "setup.cfg", encoding="utf-8")
    known = settings["options.extras_require"].keys() - {"dev"}
    asked = [word for word in re.split(r"[,\s]+", str(answers["extras"])) if word]
    unknown = sorted(set(asked) - known)
    return f"names {', '.join(unknown)}, which there is not; there are {', '.join(sorted(known))}" if unknown else None
