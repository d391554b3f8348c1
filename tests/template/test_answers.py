"""Names that would not give a working project are refused with one sentence, and nothing is left."""

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from template.answers import problems
from tests.helpers.packages import ROOT, read_lock
from tests.helpers.template import make_project

GOOD = {
    "project_name": "My Project",
    "repo_name": "my-project",
    "package_name": "my_project",
    "author": "Me",
    "licence": "MIT",
    "python_version": "3.12",
    "wandb_entity": "",
    "wandb_project": "",
    "task": "language_id",
    "extras": "",
}


def test_usual_answers_will_do() -> None:
    assert problems(GOOD) == []
    assert problems(GOOD | {"project_name": 'It\'s a "new" Idée', "extras": "lora, postgres"}) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    {
        "": "cannot be imported",
        "my-proj": "cannot be imported",
        "my proj": "cannot be imported",
        " x ": "cannot be imported",
        "a.b": "cannot be imported",
        "a/b": "cannot be imported",
        "1abc": "cannot be imported",
        "_x": "cannot be imported",
        "Torch": "cannot be imported",
        "é": "cannot be imported",
        "it's": "cannot be imported",
        "a" * 100: "has 100 letters; use at most 40",
        "class": "is a word of the language",
        "json": "would hide a module of Python's standard library",
        "test": "would hide a folder or module beside",
        "conf": "would hide a folder or module beside",
        "torch": "would hide a package that the project needs",
        "sklearn": "would hide a package that the project needs",
        "yaml": "would hide a package that the project needs",
    }.items(),
)
def test_a_package_that_python_could_not_import_is_refused(name: str, reason: str) -> None:
    (sentence,) = problems(GOOD | {"package_name": name})

    assert sentence.startswith(f"package_name: {name!r} {reason}")


@pytest.mark.parametrize(
    ("answer", "value", "reason"),
    [
        ("project_name", "  ", "is empty"),
        ("project_name", "two\nlines", "is not one line"),
        ("repo_name", "a/b", "is no name for a folder"),
        ("repo_name", "..", "is no name for a folder"),
        ("author", "", "is empty"),
        ("licence", "GPL", "is not one of Apache-2.0, MIT"),
        ("python_version", "2.7", "is not one of 3.11"),
        ("wandb_project", "a: b", "is no name in W&B"),
        ("task", "none", "is not one of language_id"),
        ("extras", "lora,nonsense", "names nonsense, which there is not; there are "),
    ],
)
def test_other_answers_are_checked_too(answer: str, value: str, reason: str) -> None:
    (sentence,) = problems(GOOD | {answer: value})

    assert sentence.startswith(f"{answer}: {value!r} {reason}")


@pytest.mark.case("30")
@pytest.mark.parametrize("name", ["class", "test", "torch", "1abc", "", "x" * 100])
def test_cookiecutter_says_so_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    done = make_project(tmp_path, f"project_name={name}")

    assert done.returncode != 0
    refusals = [line for line in done.stderr.splitlines() if line.startswith(("package_name: ", "project_name: "))]
    assert len({line.partition(":")[0] for line in refusals}) == len(refusals) >= 1, done.stderr
    assert "Traceback" not in done.stderr.partition("Stopping generation")[0]
    assert list((tmp_path / "made").iterdir()) == []


def test_the_list_of_import_names_has_those_of_every_locked_package() -> None:
    """Names of packages and of what they let one import differ: scikit-learn is sklearn."""
    listed = set((ROOT / "template/import_names.txt").read_text().split())
    locked = read_lock()
    found: dict[str, Any] = {
        name: {canonicalize_name(distribution) for distribution in distributions}
        for name, distributions in importlib.metadata.packages_distributions().items()
    }
    needed = {name for name, owners in found.items() if owners & locked.keys() and name.isidentifier()}

    assert len(listed) > 100
    assert {name for name in needed if not name.startswith("_")} <= listed


def test_the_questions_are_those_that_the_checks_know() -> None:
    questions = json.loads((ROOT / "cookiecutter.json").read_text())

    assert {name for name in questions if not name.startswith("_")} == GOOD.keys()
