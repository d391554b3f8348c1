"""Later changes of the template reach a project that has commits of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from project.common.errors import ProjectError
from project.template_update import RECORD, update
from template.manifest import MANIFEST
from tests.helpers.packages import ROOT
from tests.helpers.template import made, make_project

NAME = {f"GIT_{who}_{what}": "me" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=os.environ | NAME, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "c")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """This repository in its first version, as a repository of its own."""
    folder = tmp_path / "template"
    for name in MANIFEST.read_text().splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


@pytest.fixture
def project(template: Path, tmp_path: Path) -> Path:
    """A project from it, under git."""
    assert make_project(tmp_path, "package_name=mine", template=template).returncode == 0
    folder = made(tmp_path)
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


@pytest.mark.slow
def test_changes_of_both_sides_are_kept_and_conflicts_are_marked(template: Path, project: Path) -> None:
    (template / "project/tasks/trivial.py").open("a").write("\nfrom project.common import errors  # new\n")
    (template / "project/added.py").write_text('"""New."""\n')
    with (template / "template/manifest.txt").open("a") as manifest:
        manifest.write("project/added.py\n")
    git(template, "rm", "--quiet", "--cached", "docs/runs.md")
    newest = commit(template)
    (project / "mine/tasks/own.py").write_text('"""Mine."""\n')
    (project / "README.md").write_text("# All mine\n")
    commit(project)

    command = [sys.executable, "-m", "mine.template_update"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "from mine.common import errors  # new" in (project / "mine/tasks/trivial.py").read_text()
    assert (project / "mine/added.py").is_file()
    assert (project / "mine/tasks/own.py").is_file()
    assert (project / "README.md").read_text() == "# All mine\n"
    assert json.loads((project / RECORD).read_text())["commit"] == newest
    assert {line[0] for line in git(project, "status", "--porcelain").splitlines()} <= {"A", "M"}

    commit(project)
    (template / "README.md").write_text("# project\n\nPython 3.11 or newer\n\nApache-2.0. The end\n")
    commit(template)
    (project / "README.md").write_text("# All mine, again\n")
    commit(project)
    again = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120, check=False)

    assert again.returncode == 1
    assert "README.md" in again.stdout
    assert "<<<<<<<" in (project / "README.md").read_text()


def test_says_why_it_cannot_update(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="only a project that was made from a template"):
        update(tmp_path)

    (tmp_path / RECORD).write_text(json.dumps({"template": "x", "commit": None, "answers": {}}))
    with pytest.raises(ProjectError, match="name it: --since COMMIT"):
        update(tmp_path)
    with pytest.raises(ProjectError, match="is not the top of a git repository"):
        update(tmp_path, since="1")

    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    with (tmp_path / RECORD).open("a") as record:
        record.write("\n")
    with pytest.raises(ProjectError, match="has changes that are not committed"):
        update(tmp_path, since="1")
