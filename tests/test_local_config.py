"""This machine's own settings: conf/local, which git ignores, and `.env`, which overrides nothing."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from project import train
from tests.helpers.training import ROOT


def test_the_local_configuration_is_read_after_all_groups(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    (tmp_path / "conf" / "local").mkdir(exist_ok=True)
    (tmp_path / "conf" / "local" / "default.yaml").write_text(
        "# @package _global_\npaths: {runs_dir: /scratch}\nseed: 9\n"
    )

    with initialize_config_dir(str(tmp_path / "conf")):
        config = compose("config", overrides=["paths.cache_dir=c"])

    assert (config.paths.runs_dir, config.seed) == ("/scratch", 9)


@pytest.mark.parametrize("name", ["conf/local/default.yaml", ".env"])
def test_git_ignores_what_is_this_machines_own(tmp_path: Path, name: str) -> None:
    shutil.copy(ROOT / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, timeout=60, check=True)

    done = subprocess.run(["git", "check-ignore", name], cwd=tmp_path, capture_output=True, timeout=60, check=False)

    assert done.returncode == 0


def test_the_env_file_sets_what_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("SET_BEFORE=file\nNOT_SET_BEFORE=file\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SET_BEFORE", "shell")
    monkeypatch.setenv("NOT_SET_BEFORE", "")  # so that the end of the test takes it away
    monkeypatch.delenv("NOT_SET_BEFORE")

    train._read_env_file()

    assert (os.environ["SET_BEFORE"], os.environ["NOT_SET_BEFORE"]) == ("shell", "file")
