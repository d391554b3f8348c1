"""The server's record, which main keeps for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from project.common import process_registry
from project.common.files.layout import RunLayout
from project.common.processes.identity import Identity, ProcessKey, Role
from project.common.server_record import server_noted
from tests.helpers.waiting import until


def test_the_server_is_noted_and_is_never_killed_with_a_run(tmp_path: Path, served: int) -> None:
    RunLayout(tmp_path).make()
    with server_noted(Identity(role=Role.MAIN, run_dir=str(tmp_path)), served):
        (during,) = process_registry.read_run(tmp_path)
        killed = process_registry.kill_remaining(tmp_path)
    (after,) = process_registry.read_run(tmp_path)

    assert (during.identity.label, during.key.pid, during.state) == ("server", served, "serving")
    assert killed == []
    assert after.state == "ended"


def test_a_server_that_was_killed_has_no_outcome(tmp_path: Path) -> None:
    RunLayout(tmp_path).make()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with server_noted(Identity(role=Role.MAIN, run_dir=str(tmp_path)), process.pid):
        process.kill()
        process.wait(10)
    (record,) = process_registry.read_run(tmp_path)

    assert record.state == "killed"


def test_a_server_that_dies_at_this_moment_has_no_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Main hears of it by a pipe that closes before the process is gone, and once noted that it had completed."""
    RunLayout(tmp_path).make()
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    key = ProcessKey.of(process.pid)
    assert key is not None
    until(lambda: not key.is_alive(), what="a zombie, whose flags say that it ends")
    monkeypatch.setattr(ProcessKey, "is_alive", lambda key: True)
    monkeypatch.setattr(ProcessKey, "of", lambda pid: key)
    with server_noted(Identity(role=Role.MAIN, run_dir=str(tmp_path)), process.pid):
        pass
    monkeypatch.undo()
    process.wait(10)
    (record,) = process_registry.read_run(tmp_path)

    assert record.outcome is None
