"""Checkpoint files: whole or not at all, and what is damaged is noticed."""

import os
import random
import signal
import subprocess
import time
from collections import OrderedDict
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest
import torch

from project.common.errors import CheckpointError, StorageError
from project.common.files import checkpoint_file
from project.common.files.atomic import remove_stale_temporaries
from project.common.files.checkpoint_file import is_intact, load_checkpoint_file, save_checkpoint_file, verify_checksum
from project.common.processes.managed_process import ManagedProcess
from tests.helpers.checkpoints import Custom, FailsWhenSaved, save_forever
from tests.helpers.processes import handover_for
from tests.helpers.waiting import until


def make(path: Path, value: float = 1.0) -> Path:
    save_checkpoint_file(path, {"state_dict": {"weight": torch.full((100, 10), value)}, "numbers": [1, None, "x"]})
    return path


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    state = load_checkpoint_file(make(tmp_path / "last.ckpt"))

    assert state["numbers"] == [1, None, "x"]
    assert torch.equal(state["state_dict"]["weight"], torch.ones(100, 10))


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_noticed(tmp_path: Path, kept: float) -> None:
    path = make(tmp_path / "last.ckpt")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])

    assert not is_intact(path)
    if kept < 0.9:
        with pytest.raises(CheckpointError, match=r"last\.ckpt: cut off or not a checkpoint"):
            load_checkpoint_file(path)


def test_one_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = make(tmp_path / "last.ckpt")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))

    assert not is_intact(path)
    with pytest.raises(CheckpointError, match="damaged, its checksum does not fit"):
        load_checkpoint_file(path)


@pytest.mark.parametrize("content", [b"root:x:0:0:root:/root:/bin/bash\n", b"", b"\x80\x02.", b"{}", bytes(range(256))])
def test_what_is_no_checkpoint_at_all_is_named(tmp_path: Path, content: bytes) -> None:
    """Unpickling a text file ended in an IndexError."""
    (tmp_path / "x.ckpt").write_bytes(content)

    with pytest.raises(CheckpointError, match=r"x\.ckpt: "):
        load_checkpoint_file(tmp_path / "x.ckpt")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"gone\.ckpt: No such file"):
        load_checkpoint_file(tmp_path / "gone.ckpt")


def test_a_file_of_another_program_has_no_checksum_and_loads(tmp_path: Path) -> None:
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")

    assert not verify_checksum(tmp_path / "other.ckpt")
    assert load_checkpoint_file(tmp_path / "other.ckpt") == {"state_dict": {}}


@pytest.mark.case("90")
def test_objects_are_refused_with_what_makes_of_them_a_checkpoint_that_loads(tmp_path: Path) -> None:
    torch.save({"hyper_parameters": Custom(), "state_dict": {}}, tmp_path / "old.ckpt")

    with pytest.raises(CheckpointError, match=r"Custom.*if you trust who made it") as caught:
        load_checkpoint_file(tmp_path / "old.ckpt")
    remedy = str(caught.value).rpartition("once: ")[2]
    places = {"PATH": tmp_path / "old.ckpt", "NEW_PATH": tmp_path / "new.ckpt"}
    exec(remedy, {"torch": torch, **places})
    assert load_checkpoint_file(tmp_path / "new.ckpt") == {"state_dict": {}}


class Phase(StrEnum):
    """Text and yet no plain value."""

    WARM = "warm"


@pytest.mark.case("90")
def test_paths_enumerations_and_numbers_of_numpy_are_saved_so_that_they_load(tmp_path: Path) -> None:
    """A callback that keeps one of them in its state made every checkpoint one that no run could go on from."""
    weights = OrderedDict(weight=torch.ones(2))
    weights._metadata = {"": {"version": 2}}  # type: ignore[attr-defined]
    kept = {"path": Path("/x"), "phase": Phase.WARM, "score": np.float64(0.5), "n": [np.int64(3), (np.bool_(True),)]}

    save_checkpoint_file(tmp_path / "a.ckpt", {"state_dict": weights, "callbacks": {"mine": kept, np.int64(1): 2}})
    loaded = load_checkpoint_file(tmp_path / "a.ckpt")

    assert loaded["callbacks"] == {"mine": {"path": "/x", "phase": "warm", "score": 0.5, "n": [3, (True,)]}, 1: 2}
    assert loaded["state_dict"]._metadata == {"": {"version": 2}}


@pytest.mark.case("26")
def test_a_state_that_cannot_be_saved_leaves_the_old_file(tmp_path: Path) -> None:
    path = make(tmp_path / "last.ckpt")

    with pytest.raises(RuntimeError, match="cannot be saved"):
        save_checkpoint_file(path, {"first": torch.ones(1000), "second": FailsWhenSaved()})

    assert is_intact(path)
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


@pytest.mark.case("26")
@pytest.mark.usefixtures("served")
def test_a_kill_in_the_middle_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path, chance = make(tmp_path / "last.ckpt", value=0.0), random.Random(26)
    for _ in range(20):
        process = ManagedProcess(save_forever, handover=handover_for("forkserver"), args=(str(path),))
        process.start()
        assert process.pid is not None
        until(lambda: list(tmp_path.glob("*.tmp-*")), 30)
        time.sleep(chance.uniform(0, 0.02))  # wherever in a file it is by then
        os.kill(process.pid, signal.SIGKILL)
        process.join(5)
        assert "weight" in load_checkpoint_file(path)["state_dict"]
        assert is_intact(path)

    remove_stale_temporaries(tmp_path)

    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


@pytest.mark.case("91")
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_named_and_the_old_file_stays(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no mounting in this container")
    try:
        path = make(tmp_path / "last.ckpt")

        with pytest.raises(StorageError, match=r"no space left on the disk.*that was there is intact"):
            save_checkpoint_file(path, {"state_dict": torch.ones(1_000_000)})

        assert is_intact(path)
        assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_the_first_error_of_the_disk_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """torch reports a failed write as its own RuntimeError, which says nothing of the disk."""

    class FullFile:
        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        def flush(self) -> None: ...

    with pytest.raises(OSError, match="No space left"):
        checkpoint_file._write(FullFile(), {"weight": torch.ones(10)})  # type: ignore[arg-type]
