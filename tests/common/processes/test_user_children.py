"""Children that user code starts from a process of ours end with it, with their managers closed."""

import logging
import multiprocessing
import pickle
import signal
import time
from pathlib import Path

import psutil
import pytest

from project.common.processes.child import start_child
from project.common.processes.supervision import Supervisor
from project.common.processes.user_children import Inheritance, end_children
from tests.helpers import processes
from tests.helpers.processes import handover_for, ignore_requests
from tests.helpers.waiting import until

SPAWN = multiprocessing.get_context("spawn")


def test_is_plain_data_where_it_was_made() -> None:
    data = Inheritance({"role": "rank"})

    assert data == {"role": "rank"}
    assert pickle.dumps(data).count(b"_arrive") == 1


def test_a_child_reaches_a_safe_point_before_it_is_ended(start_method: str, tmp_path: Path) -> None:
    handover = handover_for(start_method, tmp_path)
    parent = start_child(processes.start_obedient_user_child, handover, args=(str(tmp_path),))
    until((tmp_path / "on").exists, 30)
    child = psutil.Process(int((tmp_path / "pid").read_text()))
    parent.kill()
    began = time.monotonic()
    Supervisor([parent]).run()
    until((tmp_path / "stopped").exists, 2)
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 5)

    assert (tmp_path / "stopped").read_text() == f"its parent (pid {parent.process.pid}) is gone"
    assert time.monotonic() - began < 5


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
