"""Files are old or new, never torn, also when the writer is killed in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from project.common.files.atomic import atomic_file, remove_stale_temporaries, write_json
from project.common.processes.linux import process_start_time
from tests.helpers.tree import ROOT
from tests.helpers.waiting import until

WRITER = """
import sys
from project.common.files.atomic import write_json
for i in range(10**9):
    write_json(sys.argv[1], {"i": i, "text": "x" * 200_000}, durable=False)
"""


def test_replaces_a_file_at_the_end_of_the_block(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    with atomic_file(path) as file:
        file.write("new: é")
        file.flush()
        during = path.read_text()

    assert (during, path.read_text("utf-8")) == ("old", "new: é")
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file_and_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    with pytest.raises(ValueError, match="half way"):
        _write_half(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def _write_half(path: Path) -> None:
    with atomic_file(path, mode="wb") as file:
        file.write(b"half")
        raise ValueError("half way")


@pytest.mark.parametrize("after_s", [0.02, 0.05, 0.11])
def test_a_killed_writer_leaves_a_whole_file_and_the_rest_is_cleared_away(tmp_path: Path, after_s: float) -> None:
    path = tmp_path / "f.json"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], cwd=ROOT)
    until(path.exists, 20)
    time.sleep(after_s)
    writer.send_signal(signal.SIGKILL)
    writer.wait(5)
    remove_stale_temporaries(tmp_path)

    assert len(json.loads(path.read_text())["text"]) == 200_000
    assert list(tmp_path.iterdir()) == [path]


def test_clears_away_what_dead_writers_left_and_nothing_else(tmp_path: Path) -> None:
    living = tmp_path / f"a.tmp-{os.getpid()}-{process_start_time(os.getpid())}"
    reused = tmp_path / f"b.tmp-{os.getpid()}-1"
    malformed = tmp_path / "c.tmp-x"
    for path in (living, reused, malformed, tmp_path / "d"):
        path.touch()

    assert sorted(remove_stale_temporaries(tmp_path)) == [reused, malformed]
    assert living.exists()


def test_json_takes_what_is_not_plain_as_text(tmp_path: Path) -> None:
    write_json(tmp_path / "f", {"path": Path("/x")})

    assert json.loads((tmp_path / "f").read_text()) == {"path": "/x"}
