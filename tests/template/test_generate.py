"""cookiecutter makes a clean project from this repository, from wherever it lies and whatever is around."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from template.answers import choices, tasks
from template.check import ODD
from template.generate import OWN, RECORD, files_of
from template.manifest import MANIFEST, tracked
from tests.helpers.packages import ROOT
from tests.helpers.template import files, made, make_project


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with unusual answers."""
    folder = tmp_path_factory.mktemp("with blanks") / "in it"
    done = make_project(folder, *ODD)
    assert done.returncode == 0, done.stderr
    return made(folder)


def copy_of_template(folder: Path) -> Path:
    """The files of the manifest, without git."""
    for name in MANIFEST.read_text().splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def test_the_manifest_lists_what_git_knows() -> None:
    assert MANIFEST.read_text().splitlines() == tracked(), "`make manifest` writes it anew"


def test_each_task_names_its_own_files_and_is_offered() -> None:
    manifest = MANIFEST.read_text().splitlines()
    patterns = {pattern for parts in tasks().values() for pattern in parts["files"]}
    described = [name for name in manifest if name.startswith(("conf/task/", "conf/experiment/", "conf/search/"))]
    for_all = {name for name in described if not any(fnmatch(name, pattern) for pattern in patterns)}

    assert choices("task") == list(tasks())
    assert all((ROOT / f"conf/task/{task}.yaml").is_file() for task in tasks())
    assert [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in manifest)] == []
    assert {re.sub(r"(_baseline|_ddp)?\.yaml", "", name.rpartition("/")[2]) for name in for_all} == {
        *("language_id", "trivial", "plateau"),
    }, "files of a task belong into template/tasks.json"


@pytest.mark.case("96")
def test_a_project_has_the_files_of_its_task_and_nothing_of_the_template(odd: Path) -> None:
    found = files(odd)
    texts = {name: (odd / name).read_text(encoding="utf-8") for name in found}

    assert len(found) > 400
    assert not [name for name in found if any(fnmatch(name, pattern) for pattern in OWN) or ":" in name]
    assert {"conf/task/language_model.yaml", "conf/task/language_id.yaml", RECORD} <= found
    assert not [name for name in found if "digits" in name]
    assert not [
        n for n, text in texts.items() if re.search(r"\{\{ ?cookiecutter|\{%|(begin|end) (template|task)", text)
    ]
    assert not [n for n, text in texts.items() if re.search(r"<!-- |docs/template|tests/template|make manifest", text)]
    assert not [n for n, text in texts.items() if n != RECORD and str(ROOT) in text]
    assert (odd / ".ci/run").stat().st_mode & 0o111


def test_all_files_of_a_project_parse(odd: Path) -> None:
    kinds: dict[str, Callable[[str], object]] = {
        ".py": ast.parse,
        ".yaml": yaml.safe_load,
        ".yml": yaml.safe_load,
        ".toml": tomllib.loads,
        ".json": json.loads,
    }
    parsed = [kinds[path.suffix](path.read_text()) for path in map(odd.joinpath, files(odd)) if path.suffix in kinds]

    assert len(parsed) > 400


def test_the_answers_stand_where_they_belong(odd: Path) -> None:
    def text(name: str) -> str:
        return (odd / name).read_text(encoding="utf-8")

    assert text("README.md").startswith('# It\'s a "new" idea, 2\n')
    assert "name = zz_a_long_name_for_an_idea\n" in text("setup.cfg")
    assert "author = Zoë O'Neil <zoe@example.org>\nlicense = MIT\n" in text("setup.cfg")
    assert text("LICENSE").startswith("MIT License\n\nCopyright (c) 20")
    assert "Zoë O'Neil <zoe@example.org>" in text("LICENSE")
    assert "  - task: language_model # " in text("conf/config.yaml")
    assert yaml.safe_load(text("conf/managers/wandb/default.yaml"))["entity"] == "team"
    assert yaml.safe_load(text("conf/managers/wandb/default.yaml"))["project"] == "ideas"
    assert "EXTRAS ?= lora\n" in text("Makefile")
    assert json.loads(text(RECORD))["template"] == str(ROOT)


@pytest.mark.parametrize("package", ["ab", "my_lab", "zz_a_long_name_for_an_idea"])
def test_a_project_has_the_style_of_the_template_whatever_the_length_of_its_name(tmp_path: Path, package: str) -> None:
    """Longer and shorter names break lines elsewhere, and sort imports otherwise."""
    assert make_project(tmp_path, f"package_name={package}").returncode == 0

    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", "--quiet", "."],
            cwd=made(tmp_path),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_the_oldest_python_and_the_tasks_extras_are_written_down(tmp_path: Path) -> None:
    assert make_project(tmp_path, "python_version=3.13", "licence=Proprietary").returncode == 0
    project = made(tmp_path)

    assert "python_requires = >=3.13\n" in (project / "setup.cfg").read_text()
    assert "Python :: 3.12" not in (project / "setup.cfg").read_text()
    assert "license = " not in (project / "setup.cfg").read_text()
    assert 'python: ["3.13", "3.14"]' in (project / ".github/workflows/ci.yml").read_text()
    assert "python>=3.13," in (project / "environment.yml").read_text()
    assert "(3, 13)" in (project / "Makefile").read_text()
    assert "3.11" not in (project / "Makefile").read_text()


@pytest.mark.case("94")
def test_neither_git_nor_a_repository_nor_an_identity_is_needed(tmp_path: Path) -> None:
    template = copy_of_template(tmp_path / "a template")
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True, timeout=60)
    without_git = {"PATH": str(tmp_path / "nothing"), "HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": "/dev/null"}

    done = make_project(repository, template=Path("a template"), start=tmp_path, environ=without_git)

    assert done.returncode == 0, done.stderr
    project = made(repository)
    assert not (project / ".git").exists()
    assert json.loads((project / RECORD).read_text())["commit"] is None
    assert len(files(project)) == len(files_of(template, "language_id")) + 1


def test_a_zip_will_do(tmp_path: Path) -> None:
    template = copy_of_template(tmp_path / "template")
    with zipfile.ZipFile(tmp_path / "template.zip", "w") as archive:
        archive.mkdir("template-main")
        for path in sorted(template.rglob("*")):
            archive.write(path, Path("template-main") / path.relative_to(template))

    done = make_project(tmp_path / "new", template=tmp_path / "template.zip")

    assert done.returncode == 0, done.stderr
    assert len(files(made(tmp_path / "new"))) == len(files_of(template, "language_id")) + 1


def test_what_was_there_before_is_left_alone(tmp_path: Path) -> None:
    assert make_project(tmp_path).returncode == 0
    mine = made(tmp_path) / "mine.txt"
    mine.write_text("mine")

    again = make_project(tmp_path)
    forced = subprocess.run(
        [sys.executable, "-m", "cookiecutter", "--no-input", "-f", "-o", str(tmp_path / "made"), str(ROOT)],
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert "already exists" in again.stdout + again.stderr
    assert again.returncode != 0
    assert f"{made(tmp_path)}: holds something; choose another repo_name" in forced.stderr + forced.stdout
    assert forced.returncode != 0
    assert mine.read_text() == "mine"
    assert (made(tmp_path) / "setup.cfg").is_file()
