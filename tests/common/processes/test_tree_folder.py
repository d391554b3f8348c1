"""A tree's folder for sockets is gone with its owner, and what a killed owner left the next start removes."""

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from project.common.processes import reaper, tree_folder
from project.common.processes.identity import ProcessKey


@pytest.fixture(autouse=True)
def _temporary(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short_folder))


def left_by(key: ProcessKey, name: str) -> Path:
    folder = Path(tempfile.gettempdir(), tree_folder.PREFIX + name)
    folder.mkdir()
    (folder / "owner.json").write_text(json.dumps(vars(key)))
    (folder / "listener-x").touch()
    return folder


def test_removes_what_dead_owners_of_this_machine_left_and_nothing_else() -> None:
    own = ProcessKey.own()
    dead = left_by(replace(own, start_time="1"), "dead")
    living = left_by(own, "living")
    elsewhere = left_by(replace(own, pid_namespace="pid:[1]", start_time="1"), "elsewhere")
    nobodys = Path(tempfile.gettempdir(), tree_folder.PREFIX + "nobody")
    nobodys.mkdir()

    made = tree_folder.make()

    reaper.remove_stale()

    assert not dead.exists()
    assert all(folder.exists() for folder in (living, elsewhere, nobodys, made))


def test_only_the_owner_removes_it() -> None:
    folder = tree_folder.make()

    tree_folder.remove(folder, os.getpid() + 1)
    assert folder.exists()
    tree_folder.remove(folder, os.getpid())
    assert not folder.exists()


def test_where_a_path_would_be_too_long_for_sockets_a_short_one_is_used_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    folder = tree_folder.make()
    tree_folder.remove(folder, os.getpid())

    assert folder.parent == Path("/tmp")
    assert f"TMPDIR: {long} is too long for the addresses of sockets (51 bytes at most)" in caplog.text
