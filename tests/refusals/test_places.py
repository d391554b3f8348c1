"""Folders and checkpoints that will not do are named, and what was there stays as it was."""

import fcntl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from project.common.errors import CheckpointError
from project.common.files.layout import RunLayout
from project.training.launch import run
from tests.helpers.refusals import QUICK, compose_trivial, refused
from tests.helpers.training import tiny_config

pytestmark = pytest.mark.usefixtures("served")


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    (problem,) = refused(tiny_config(tmp_path, *QUICK, f"paths.runs_dir={tmp_path}/file/runs"))

    assert problem == (
        f"paths.runs_dir: {tmp_path}/file/runs/tiny cannot be written to (Not a directory); give a folder that can"
    )


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, _session: None) -> bytes:
    """A good one, of a model of width 32."""
    folder = tmp_path_factory.mktemp("good")
    _, result = run(tiny_config(folder, *QUICK))
    assert result is not None
    return Path(result["last_checkpoint"]).read_bytes()


def test_a_truncated_checkpoint_is_refused(tmp_path: Path, checkpoint: bytes) -> None:
    path = tmp_path / "cut.ckpt"
    path.write_bytes(checkpoint[:-100])

    (problem,) = refused(tiny_config(tmp_path, *QUICK, f"ckpt_path={path}"), CheckpointError)

    assert problem.startswith(f"{path}: cut off or not a checkpoint")


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path, checkpoint: bytes) -> None:
    path = tmp_path / "other.ckpt"
    path.write_bytes(checkpoint)

    (problem,) = refused(tiny_config(tmp_path, *QUICK, f"ckpt_path={path}", "task.model.width=64"), CheckpointError)

    assert problem.startswith(f"{path}: holds another model's weights: ")
    assert problem.endswith("give the task.model settings it was trained with")


def test_a_new_run_starts_from_a_good_checkpoint(tmp_path: Path, checkpoint: bytes) -> None:
    path = tmp_path / "good.ckpt"
    path.write_bytes(checkpoint)

    outcome, result = run(tiny_config(tmp_path, *QUICK, f"ckpt_path={path}", "trainer.max_epochs=2"))

    assert outcome.exit_code == 0
    assert result is not None
    assert result["step"] == 18


def test_two_mains_never_own_one_folder(tmp_path: Path) -> None:
    outcome, _ = run(compose_trivial(tmp_path))
    (folder,) = (tmp_path / "runs" / "trivial").iterdir()
    with open(RunLayout(folder).owner, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        problems = refused(compose_trivial(tmp_path, f"resume={folder}"))

    assert outcome.exit_code == 0
    assert problems == [f"resume: {folder} is owned by a running process; wait for it, or stop it"]


def test_a_folder_of_another_configuration_is_not_taken_up(tmp_path: Path) -> None:
    run(compose_trivial(tmp_path))
    (folder,) = (tmp_path / "runs" / "trivial").iterdir()

    [line] = refused(compose_trivial(tmp_path, f"resume={folder}", "seed=2"))

    assert line == (
        f"resume: {folder} ran another configuration (seed: 1, not 2, managers.batch.seed: 1, not 2); give these back, "
        "or start a new run from its checkpoint with ckpt_path="
    )
    assert refused(compose_trivial(tmp_path, f"resume={tmp_path}")) == [
        f"resume: {tmp_path} is not a run folder; give one below paths.runs_dir, auto or never"
    ]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"file systems cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.case("91")
def test_a_run_that_saves_more_than_the_disk_holds_keeps_two_checkpoints_and_completes(
    tmp_path: Path, small_disk: Path
) -> None:
    config = tiny_config(tmp_path, *QUICK, f"paths.runs_dir={small_disk}/runs", "callbacks.checkpoint.every_n_steps=1")

    outcome, result = run(config)

    assert outcome.exit_code == 0, outcome.cause
    assert result is not None
    kept = sorted((small_disk / "runs").rglob("*.ckpt"))
    assert [path.name for path in kept] == ["best.ckpt", "last.ckpt"]
    assert result["step"] * kept[0].stat().st_size > 2**20, "all of them would not have had room"


def test_a_disk_that_fills_up_while_saving_is_named(tmp_path: Path, small_disk: Path) -> None:
    config = tiny_config(
        tmp_path, *QUICK, f"paths.runs_dir={small_disk}/runs", "task.model.width=128", "task.model.n_layers=2"
    )

    outcome, _ = run(config)

    assert outcome.exit_code == 1
    assert outcome.cause is not None
    assert ".ckpt: could not be written, no space left on the disk; free some, or set paths.runs_dir" in outcome.cause
    assert not list(small_disk.rglob("*.tmp-*"))
