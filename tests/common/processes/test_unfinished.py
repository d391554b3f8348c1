"""A task that has ended does not hold up its process by threads and children that it left at work."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from project.common.processes.identity import Role
from tests.helpers import runs, unfinished
from tests.helpers.processes import handover_for, run_child

LONG_S = 600.0
LIMIT = {"processes": {"finish_timeout_s": 0.5}}


@pytest.mark.parametrize(
    ("leave", "name"), [(unfinished.thread, "thread uploader"), (unfinished.child, "process indexer (pid ")]
)
def test_what_does_not_end_in_time_is_cut_and_named(
    start_method: str, tmp_path: Path, leave: Callable[[float], None], name: str
) -> None:
    child, _ = run_child(leave, handover_for(start_method, tmp_path, config=LIMIT), LONG_S)

    assert child.exit_code == 0, child.how_it_ended()
    text = next((tmp_path / "logs").glob("trial-*.log")).read_text()
    assert f"did not end with the task, and was cut: {name}" in text


def test_what_ends_in_time_has_done_its_work(start_method: str, tmp_path: Path) -> None:
    child, _ = run_child(unfinished.writing_thread, handover_for(start_method, tmp_path), str(tmp_path / "written"))

    assert child.exit_code == 0
    assert (tmp_path / "written").exists()


def test_pools_that_were_not_shut_down_are_not_waited_for(start_method: str, tmp_path: Path) -> None:
    child, _ = run_child(unfinished.pools, handover_for(start_method, tmp_path), 0.0)

    assert child.exit_code == 0
    assert "did not end with the task" not in next((tmp_path / "logs").glob("trial-*.log")).read_text()


@pytest.mark.parametrize("role", [Role.TRIAL, Role.WORKER])
def test_nothing_is_waited_for_after_a_failure_nor_in_a_worker(start_method: str, tmp_path: Path, role: Role) -> None:
    place = {"rank": 0} if role is Role.WORKER else {}
    leave = unfinished.thread if role is Role.WORKER else unfinished.thread_and_fail
    began = time.monotonic()
    child, _ = run_child(leave, handover_for(start_method, tmp_path, role=role, **place), LONG_S)

    assert child.exit_code == (0 if role is Role.WORKER else 3)
    assert time.monotonic() - began < 50  # not the minute that success has


@pytest.mark.slow
def test_a_run_that_is_complete_says_what_it_waits_for_and_ends(tmp_path: Path) -> None:
    task = ("task.run._target_=tests.helpers.unfinished.task", "~task.run.steps", "~task.run.step_s")
    with runs.started(runs.trivial(tmp_path, *task), tmp_path) as tree:
        tree.wait_until_written("the task has ended, and left at work: thread uploader, process indexer (pid ")
        tree.signal(signal.SIGINT)
        code = tree.wait(10)
        tree.assert_nothing_left(1)

    assert code == 0, tree.text
    assert "did not end with the task, and was cut: thread uploader, process indexer (pid " in tree.text
    assert runs.outcome(runs.run_folder(tmp_path))["status"] == "completed"
