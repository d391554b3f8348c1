"""Writes a project: the files of the manifest without what is the template's own, with the chosen names in them."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from template.answers import chosen_extras, tasks
from template.choices import choose
from template.parts import keep_parts
from template.rename import rename, rename_path

# What makes the template a template.
OWN = (
    "cookiecutter.json",
    "CITATION.cff",
    "hooks/*",
    "template/*",
    "{{cookiecutter.repo_name}}/*",
    "tests/template/*",
    "tests/helpers/template.py",
    "docs/template.md",
    "tests/FIELD_CASES.md",
    "tests/test_field_cases.py",
)
RECORD = ".template.json"


def generate(template: Path, target: Path, answers: Mapping[str, Any]) -> list[str]:
    """Writes the project into `target`; returns what to tell the user."""
    package, task = str(answers["package_name"]), str(answers["task"])
    for name in files_of(template, task):
        source, path = template / name, target / rename_path(name, package)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = keep_parts(name, source.read_text(encoding="utf-8"), task)
        text = choose(name, rename(name, text, package), answers, template)
        path.write_text(text, encoding="utf-8", newline="\n")
        path.chmod(0o755 if text.startswith("#!") else 0o644)
    _record(template, target, answers)
    return [*_lay_out(target), *_next_steps(answers)]


def files_of(template: Path, task: str) -> list[str]:
    """Returns the files of a project that starts from this task, as they are called in the template."""
    manifest = (template / "template" / "manifest.txt").read_text(encoding="utf-8").splitlines()
    left_out = [*OWN, *(p for other, parts in tasks().items() if other != task for p in parts["files"])]
    wanted = tasks()[task]["files"]
    return [n for n in manifest if any(fnmatch(n, p) for p in wanted) or not any(fnmatch(n, p) for p in left_out)]


def commit_of(template: Path) -> str | None:
    """Returns the commit that the template is at; None without git or for a folder that is no repository itself."""
    if not (template / ".git").exists() or shutil.which("git") is None:
        return None
    done = subprocess.run(
        ["git", "-C", str(template), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout.strip() or None


def _record(template: Path, target: Path, answers: Mapping[str, Any]) -> None:
    given = {name: value for name, value in answers.items() if not name.startswith("_")}
    asked = str(answers.get("_template", ""))
    source = asked if re.match(r"[\w+]+://|[\w.-]+@|(gh|gl|bb):|.*\.zip$", asked) else str(template)
    record = {"template": source, "commit": commit_of(template), "answers": given}
    (target / RECORD).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _lay_out(target: Path) -> list[str]:
    """Names of another length break lines elsewhere."""
    if importlib.util.find_spec("ruff") is not None:
        ruff = [sys.executable, "-m", "ruff"]
    elif shutil.which("ruff") is not None:
        ruff = ["ruff"]
    else:
        return ["ruff was not found beside cookiecutter: `make format` lays the code out for the new name"]
    subprocess.run([*ruff, "format", "--quiet", "--no-cache", "."], cwd=target, timeout=120, check=True)
    return []


def _next_steps(answers: Mapping[str, Any]) -> list[str]:
    extras = chosen_extras(answers)
    added = f" with the extras {', '.join(extras)}" if extras else ""
    return [f"{answers['repo_name']} is made; in it, `make train` installs{added} and trains"]
