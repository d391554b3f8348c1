"""The package's name changes where the word means the package, and nowhere else."""

import re

import pytest

from template.manifest import MANIFEST
from template.rename import rename, rename_path
from tests.helpers.packages import ROOT

TEMPLATES_OWN = (
    "CITATION.cff",
    "docs/template.md",
    "template/",
    "tests/template/",
    "tests/helpers/template",
    "hooks/",
    "cookiecutter",
    "{{",
)
CHANGED = {
    "a.py": """\
import project
import project.train
from project import tasks
from project.common import errors
path = ROOT / "project" / "common"
name = f"project.common.managers.{name}"
code = "import sys, project.train; from project.x import main"
title = "project: server"
other = f"project: {label}"
files = SHM.glob(f"sem.project-{pid}-*")
pattern = "sem\\.project-|torch_"
prefix = "project-tree-"
module = project.__name__
match = r"python -m project\\.export"
folder = "~/.cache/project"
variable = "PROJECT_ALLOW"
hint = "pip install 'project[lora]'"
for logger in (getLogger("project"), getLogger('project')):
""",
    "a.md": """\
`project/tasks/` and `python -m project.ps`; $XDG_CACHE_HOME/project or ~/.cache/project; the `project` package
from project.common.managers import clear_memory
""",
    "a.yaml": """\
_target_: project.tasks.models.text_classifier
cache_dir: null # null: project/ in the user's cache folder
place: pkg://project.conf
""",
    "setup.cfg": """\
name = project
version = attr: project.__version__
    project
    project = project
    project.conf = conf
project = **/*.py
    project-launcher = project.sweeps.plugins:TrialLauncher
    project-train = project.train:main
[mypy-project.common.x]
root_package = project
    (project.tasks) | (project.common)
""",
    "Makefile": """\
	@"$(BIN)/mypy" project $(wildcard train.py)
	@"$(BIN)/python" -m project.report
""",
    "environment.yml": "# `conda activate project`\nname: project\n",
    "pyproject.toml": '"project/{train,eval}.py" = ["T20"]\n',
}
KEPT = {
    "a.py": """\
class ProjectError(Exception): ...
wandb.init(project=project, **{"project": "tests"})
self.settings = {"project": project, "mode": "offline"}
value = settings["project"], settings.get("project", "x")
overrides = ("managers.wandb.project=other", "/work/project, abc")
# Every task of this project. The project's own; projects, a project-wide rule, my_project.x, subproject.y
""",
    "a.yaml": "project: ${name} # W&B's project\n",
    "Makefile": "# Every task of this project. `make` lists them\n",
    "setup.cfg": "author = The project authors\n",
    "a.md": "Each project has its own. A project: what it is.\n",
}


@pytest.mark.parametrize("name", CHANGED)
def test_every_kind_of_use_is_renamed(name: str) -> None:
    renamed = rename(name, CHANGED[name], "new_name")

    assert not re.findall(r"(?<!\w)project(?!\w)|PROJECT_", renamed), renamed
    assert renamed.replace("NEW_NAME", "PROJECT").replace("new_name", "project") == CHANGED[name]


@pytest.mark.parametrize("name", KEPT)
def test_other_meanings_of_the_word_are_kept(name: str) -> None:
    assert rename(name, KEPT[name], "new_name") == KEPT[name]


def test_a_long_name_is_cut_in_paths_of_sockets() -> None:
    assert rename("a.py", 'PREFIX = "project-tree-"', "a_long_name_for_it") == 'PREFIX = "a_long_nam-tree-"'


def test_only_the_packages_folder_moves() -> None:
    assert rename_path("project/train.py", "x") == "x/train.py"
    assert rename_path("tests/project/a.py", "x") == "tests/project/a.py"
    assert rename_path("project.md", "x") == "project.md"


def test_the_word_that_is_left_in_code_and_configuration_means_something_else() -> None:
    """Comments and prose may speak of projects; what is left elsewhere is listed, so that nothing new slips through."""
    left = set()
    for name in MANIFEST.read_text().split("\n")[:-1]:
        if name.startswith(TEMPLATES_OWN):
            continue
        for line in rename(name, (ROOT / name).read_text(encoding="utf-8"), "new_name").splitlines():
            code = " ".join(re.findall("`[^`]*`", line)) if name.endswith(".md") else line.partition("# ")[0]
            if re.search(r"(?<!\w)project(?!\w)|project_|PROJECT_", code) and not _is_prose(code):
                left.add((name, line.strip()))

    assert left == {
        ("conf/managers/wandb/default.yaml", "project: ${name} # W&B's project"),
        ("project/common/managers/wandb.py", '"project": project,'),
        ("project/common/managers/wandb.py", "project: W&B project."),
        ("project/common/managers/wandb.py", "project: str,"),
        ("project/common/processes/mp_internals.py", '_INHERITED = "project_handover"'),
    } | {(name, line) for name, line in left if name.startswith("tests/") and _is_ours(line)}


def _is_prose(line: str) -> bool:
    return bool(re.search(r"\b(this|the|The|a|new|no|two|user's|installed) project\b|\bproject(s|'s| authors)\b", line))


def _is_ours(line: str) -> bool:
    return bool(re.search(r"managers\.wandb\.project|/work/project|\"project\": \"tests\"", line))
