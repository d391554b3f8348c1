"""Hydra finds the sweeper and the launcher however the project is installed, and each of two projects its own."""

import re
import shutil
from configparser import ConfigParser
from pathlib import Path

import pytest

import project
from tests.helpers.tree import ROOT, running

pytestmark = pytest.mark.slow

NAME = project.__name__
SWEEP = (
    *("-m", "task=trivial", "name=x", "hydra.sweeper.n_trials=1", "seed=choice(1)", "managers/wandb=disabled"),
    *("logger=none", "managers.directory.min_free_mb=0"),
)


def install(package: str, folder: Path) -> None:
    """A copy of the project under another name, with the metadata that an installation writes."""
    for name in (NAME, "conf"):
        target = folder / package / "conf" if name == "conf" else folder / package
        shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__", "local"))
    for path in [*(folder / package).rglob("*.py"), *(folder / package).rglob("*.yaml")]:
        path.write_text(re.sub(rf"\b{NAME}(?=[./]|$| import)", package, path.read_text(), flags=re.MULTILINE))
    settings = ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg")
    info = folder / f"{package}-0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0\n")
    groups = settings["options.entry_points"].items()
    text = "".join(f"[{group}]\n{entries.strip()}\n" for group, entries in groups)
    (info / "entry_points.txt").write_text(text.replace(NAME, package))


def test_each_of_two_installed_projects_uses_its_own(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for package in ("alpha", "beta"):
        install(package, site)
    for package in ("alpha", "beta"):
        folder = tmp_path / package
        folder.mkdir()

        command = ["python", "-m", f"{package}.train", *SWEEP]
        with running(command, output=folder / "output", environ={"PYTHONPATH": str(site)}, cwd=folder) as tree:
            code = tree.wait(100)
            tree.assert_nothing_left()

        assert code == 0, tree.text
        config = (folder / "sweeps" / "x" / "0" / "config.yaml").read_text()
        assert f"{package}.common.managers" in config
        assert "trials: 1 completed" in tree.text


def test_from_a_checkout_as_a_module(tmp_path: Path) -> None:
    command = ["python", "-m", "project.train", *SWEEP]
    with running(command, output=tmp_path / "output", environ={"PYTHONPATH": str(ROOT)}, cwd=tmp_path) as tree:
        code = tree.wait(100)

    assert code == 0, tree.text
    assert (tmp_path / "sweeps" / "x" / "0" / "outcome.json").is_file()
