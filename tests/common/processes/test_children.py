"""What a process has started does not outlive its work, and does not hold it up."""

import logging
import multiprocessing
import signal
import time
from pathlib import Path

import pytest

from project.common.processes.children import end_children
from tests.helpers.processes import ignore_requests
from tests.helpers.waiting import until

SPAWN = multiprocessing.get_context("spawn")


def deaf(started: str) -> None:
    """A child that ignores SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ignore_requests(started)


def test_children_are_asked_to_end(tmp_path: Path) -> None:
    child = SPAWN.Process(target=ignore_requests, args=(str(tmp_path / "on"),))
    child.start()
    until((tmp_path / "on").exists, 30)
    end_children(daemons_only=False)

    assert child.exitcode == -signal.SIGTERM


def test_one_that_does_not_is_killed_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    child = SPAWN.Process(target=deaf, args=(str(tmp_path / "on"),), daemon=True)
    child.start()
    until((tmp_path / "on").exists, 30)
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        end_children(daemons_only=True)

    assert child.exitcode == -signal.SIGKILL
    assert time.monotonic() - began < 3
    assert f"(pid {child.pid}) did not end in time and was killed" in caplog.text


def test_after_success_a_child_that_is_no_daemon_may_finish_its_work() -> None:
    child = SPAWN.Process(target=time.sleep, args=(0.1,))
    child.start()
    end_children(daemons_only=True)
    child.join(20)

    assert child.exitcode == 0
