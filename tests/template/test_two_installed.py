"""This repository and a project made from it, both installed from wheels, share an environment."""

from pathlib import Path

import pytest

from tests.helpers.packages import ROOT
from tests.helpers.template import made, make_project
from tests.helpers.tree import running
from tests.helpers.wheels import build_wheel, install

QUIET = ("managers/wandb=disabled", "logger=none", "managers.directory.min_free_mb=0")
SWEEP = ("-m", "task=trivial", "name=x", "hydra.sweeper.n_trials=1", "seed=choice(1)", *QUIET)


@pytest.mark.slow
def test_each_has_its_own_plugins_configuration_and_state(tmp_path: Path) -> None:
    assert make_project(tmp_path, "package_name=other_one").returncode == 0
    site, home = tmp_path / "site", tmp_path / "home"
    for source, package in ((ROOT, "project"), (made(tmp_path), "other_one")):
        install(build_wheel(source, package, tmp_path / package), site)
    environ = {"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(home / "cache"), "XDG_STATE_HOME": str(home / "state")}

    for package, title in (("project", "project: "), ("other_one", "other_one: ")):
        folder = tmp_path / f"in {package}"
        folder.mkdir()
        command = ["python", "-m", f"{package}.train", *SWEEP]
        with running(command, output=folder / "output", environ=environ, cwd=folder) as tree:
            code = tree.wait(100)
            tree.assert_nothing_left()

        assert code == 0, tree.text
        assert f"{package}.common.managers" in (folder / "sweeps/x/0/config.yaml").read_text()
        assert (home / "state" / package).is_dir(), title
    assert {path.name for path in home.glob("*/*")} == {"project", "other_one"}
