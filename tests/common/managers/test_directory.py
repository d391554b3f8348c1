"""The run's folder, the cache, and things made once per machine."""

import logging
import re
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from project.common.errors import ConfigError, NotInitializedError, StorageError
from project.common.files import disk
from project.common.files.disk import DiskSpaceError
from project.common.processes import handover
from project.common.processes.identity import Identity, Role, current_identity, set_identity
from tests.helpers.directory import manager

LIMIT_S = 60.0


pytestmark = pytest.mark.usefixtures("main_process")


def test_makes_one_run_folder_with_a_name_that_every_system_takes(tmp_path: Path) -> None:
    run_dir = manager(tmp_path).run_dir

    assert run_dir.parent == tmp_path / "runs" / "trial_run"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d-[0-9a-f]{6}", run_dir.name)
    assert {place.name for place in run_dir.iterdir()} == {"checkpoints", "logs", "processes"}


def test_two_threads_that_ask_first_get_the_same_folder(tmp_path: Path) -> None:
    directory, found = manager(tmp_path), []
    threads = [threading.Thread(target=lambda: found.append(directory.run_dir)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)

    assert len(found) == 4
    assert len(set(found)) == 1


def test_processes_started_later_are_told_of_the_folder(tmp_path: Path) -> None:
    run_dir = manager(tmp_path).run_dir

    identity = current_identity()
    assert identity is not None
    assert identity.run_dir == str(run_dir)
    assert manager(tmp_path).run_dir == run_dir


def test_children_that_a_user_starts_are_told_too(tmp_path: Path) -> None:
    handover.share_identity(Identity(role=Role.RANK, rank=0))
    try:
        run_dir = manager(tmp_path).run_dir
        inherited = handover.inherited_identity()
    finally:
        handover.share_identity(None)

    assert inherited is not None
    assert (inherited.role, inherited.run_dir) == (Role.WORKER, str(run_dir))


def test_uses_the_folder_that_it_was_handed(tmp_path: Path) -> None:
    set_identity(Identity(role=Role.RANK, rank=1, run_dir=str(tmp_path / "given")))

    assert manager(tmp_path).layout.checkpoint("best") == tmp_path / "given" / "checkpoints" / "best.ckpt"
    assert not (tmp_path / "runs").exists()


def test_a_worker_without_a_run_folder_says_who_makes_it(tmp_path: Path) -> None:
    set_identity(Identity(role=Role.WORKER, worker=0))

    with pytest.raises(NotInitializedError, match=r"managers\.directory: this worker was given no run folder"):
        _ = manager(tmp_path).run_dir


def test_runs_are_kept_where_the_command_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra can change the working directory per job; folders must not wander with it."""
    from hydra.conf import HydraConf
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.singleton import Singleton
    from omegaconf import OmegaConf

    before = Singleton.get_state()
    config = OmegaConf.create({"hydra": OmegaConf.structured(HydraConf)})
    config.hydra.runtime.cwd = str(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    HydraConfig.instance().set_config(config)
    try:
        assert manager(tmp_path, runs_dir="runs").runs_dir == tmp_path / "runs"
    finally:
        Singleton.set_state(before)


@pytest.mark.parametrize("name", ["a:b", "a/b", "", "..", "ends.", "tab\t"])
def test_refuses_a_name_that_is_no_folder_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a folder's name"):
        manager(tmp_path, name=name)


def test_an_unwritable_run_folder_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(
        ConfigError, match=r"paths\.runs_dir: cannot write .*Not a directory.*paths\.runs_dir="
    ) as caught:
        _ = manager(tmp_path, runs_dir=str(tmp_path / "file" / "runs")).run_dir
    assert len(caught.value.problems) == 1


def test_a_run_does_not_start_on_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    directory = manager(tmp_path, min_free_mb=1e9)

    with pytest.raises(DiskSpaceError, match=r"runs: [\d,]+ MB free, 1,000,000,000 MB are needed to start a run"):
        _ = directory.run_dir
    assert not directory.check().ok
    assert not (tmp_path / "runs").exists()


def test_space_is_asked_for_by_name_and_number(tmp_path: Path) -> None:
    directory = manager(tmp_path)
    directory.require_free(1, "to save a model")

    with pytest.raises(
        DiskSpaceError, match=re.escape(str(directory.run_dir)) + r".* 9,000,000,000 MB.* to save a model"
    ):
        directory.require_free(9e9, "to save a model")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(DiskSpaceError, match="the disk is full while writing a checkpoint"),
        disk.explain_full_disk(tmp_path, "a checkpoint"),
    ):
        Path("/dev/full").write_text("x")


def test_written_files_are_whole_and_leave_nothing_beside_them(tmp_path: Path) -> None:
    directory = manager(tmp_path)
    directory.write_json("metrics.json", {"val/acc": 0.5})
    directory.write_bytes("export/weights.bin", b"123")

    with suppress(RuntimeError), directory.open_atomic("metrics.json") as file:
        file.write("torn")
        raise RuntimeError

    assert '"val/acc": 0.5' in directory.layout.metrics.read_text()
    assert [place.name for place in (directory.run_dir / "export").iterdir()] == ["weights.bin"]
    assert not list(directory.run_dir.glob("*.tmp-*"))


def test_a_written_text_goes_through_the_same_door(tmp_path: Path) -> None:
    assert manager(tmp_path).write_text("note.txt", "ä").read_text(encoding="utf-8") == "ä"


def test_the_cache_follows_the_users_wish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))

    assert manager(tmp_path, cache_dir=None).cache_dir == tmp_path / "xdg" / "project"
    assert manager(tmp_path, cache_dir=str(tmp_path / "own")).cache_dir == tmp_path / "own"


def test_a_cache_that_cannot_be_written_is_replaced_with_a_warning(
    tmp_path: Path, short_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(short_folder))

    found = manager(tmp_path, cache_dir=str(tmp_path / "file" / "cache")).cache_dir

    assert found.parent == short_folder
    assert "cannot be written (Not a directory)" in caplog.text


def test_without_any_writable_place_the_cache_is_in_the_run_folder(
    tmp_path: Path, short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (short_folder / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(short_folder / "file"))
    directory = manager(tmp_path, cache_dir=str(tmp_path / "file"))

    assert directory.cache_dir == directory.run_dir / "cache"


def test_health_names_the_folder(tmp_path: Path) -> None:
    directory = manager(tmp_path)
    assert directory.check().ok

    folder = directory.run_dir
    assert str(folder) in directory.check().reason


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


def test_a_run_folder_that_was_removed_is_not_made_anew(tmp_path: Path) -> None:
    """What eval.py wrote lay in a folder without anything else, and nobody was told."""
    directory = manager(tmp_path)
    folder = directory.run_dir
    shutil.rmtree(folder)

    for write in (directory.write_text, directory.write_json):
        with pytest.raises(StorageError, match="the run's folder was removed or replaced while it ran"):
            write("a.txt", "")

    assert not folder.exists()
