"""Installed from its wheel, the project runs from any folder, and takes configurations of its user's."""

import json
from pathlib import Path

import pytest

import project
from tests.helpers.packages import ROOT
from tests.helpers.tree import running
from tests.helpers.wheels import build_wheel, install

pytestmark = pytest.mark.slow
NAME = project.__name__
QUIET = ("managers/wandb=disabled", "logger=none", "managers.directory.min_free_mb=0")
OWN = """\
# @package _global_
defaults:
  - override /task: trivial
name: own
task:
  run:
    steps: 3
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the wheel was installed."""
    folder = tmp_path_factory.mktemp("installed")
    install(build_wheel(ROOT, NAME, folder), folder / "site")
    return folder / "site"


@pytest.mark.case("97")
@pytest.mark.parametrize("kind", ["command", "module"])
def test_runs_from_any_folder_with_a_configuration_of_its_users(site: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "a folder"
    (folder / "mine" / "experiment").mkdir(parents=True)
    (folder / "mine" / "experiment" / "own.yaml").write_text(OWN)
    start = [str(site / "bin" / f"{NAME}-train")] if kind == "command" else ["-m", f"{NAME}.train"]
    environ = {"PYTHONPATH": str(site)}

    command = ["python", *start, "--config-dir", "mine", "+experiment=own", *QUIET]
    with running(command, output=folder / "output", environ=environ, cwd=folder) as tree:
        code = tree.wait(100)
        tree.assert_nothing_left()

    assert code == 0, tree.text
    (run,) = (folder / "runs/own").iterdir()
    assert json.loads((run / "outcome.json").read_text())["status"] == "completed"
    assert "steps: 3" in (run / "config.yaml").read_text()


def test_sweeps_from_any_folder_with_its_plugins(site: Path, tmp_path: Path) -> None:
    space = ("-m", "task=trivial", "name=x", "hydra.sweeper.n_trials=1", "seed=choice(1)")
    command = ["python", str(site / "bin" / f"{NAME}-train"), *space, *QUIET]

    with running(command, output=tmp_path / "output", environ={"PYTHONPATH": str(site)}, cwd=tmp_path) as tree:
        code = tree.wait(100)

    assert code == 0, tree.text
    assert "trials: 1 completed" in tree.text
