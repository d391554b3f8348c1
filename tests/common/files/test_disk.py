"""Full disks are told with what is free, where the disk is mounted, and the setting that moves the folder."""

import errno
import os
from pathlib import Path

import pytest

from project.common.files.disk import DiskSpaceError, explain_full_disk, mount_of, size_text
from project.common.files.once import create_once


@pytest.mark.parametrize(
    ("mb", "text"), [(0.0, "0 KB"), (4 / 1024, "4 KB"), (0.5, "512 KB"), (1, "1.0 MB"), (1234.4, "1,234 MB")]
)
def test_small_sizes_are_told_in_kilobytes(mb: float, text: str) -> None:
    """A disk with 400 KB left was told as having 0 MB."""
    assert size_text(mb) == text


def fill_up(path: Path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_of_the_cache_names_the_setting_that_moves_the_cache(tmp_path: Path) -> None:
    with pytest.raises(DiskSpaceError) as caught:
        create_once(tmp_path / "data" / "x", fill_up, timeout_s=5)

    assert str(caught.value).startswith(f"{tmp_path}/data: the disk is full while writing x (")
    assert str(caught.value).endswith(
        f" the disk at {mount_of(tmp_path)}, or choose another folder with paths.cache_dir"
    )


def test_a_full_disk_of_the_run_names_the_setting_that_moves_runs(tmp_path: Path) -> None:
    cure = r"or choose another folder with paths\.runs_dir$"
    with pytest.raises(DiskSpaceError, match=cure), explain_full_disk(tmp_path, "x"):
        fill_up(tmp_path)


@pytest.mark.skipif(not Path("/proc/mounts").exists(), reason="mounts are listed on Linux")
def test_the_mount_is_the_nearest_above() -> None:
    assert mount_of(Path("/proc/self/no/such")) == Path("/proc")
    assert mount_of(Path("/no/such/folder")) == Path("/")
