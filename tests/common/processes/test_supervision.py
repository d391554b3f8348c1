"""However a child ends, its parent knows how, and nothing below it is left."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from project.common import process_registry
from project.common.processes import stop
from project.common.processes.child import start_child
from project.common.processes.identity import Role
from project.common.processes.outcome import Status
from project.common.processes.supervision import Supervisor, end_subtree
from tests.helpers import processes
from tests.helpers.processes import handover_for, run_child
from tests.helpers.waiting import until


def stop_soon(after: Callable[[], bool], *, deadline_s: float, reason: str = "SIGTERM") -> Callable[..., None]:
    """A request to this process once `after` holds; given to a Supervisor it is asked at every message."""
    until(after, 30)
    request = stop.StopRequest(reason=reason, exit_code=143, deadline=time.monotonic() + deadline_s)
    stop.request_stop(request)
    return lambda child, kind, data: None


@pytest.fixture(autouse=True)
def _no_request_stays() -> object:
    yield
    stop.forget_stop_request()


@pytest.mark.case("35")
@pytest.mark.parametrize(
    ("way", "exit_code", "status", "words"),
    [
        ("return", 0, Status.COMPLETED, "exited with 0"),
        ("raise", 1, Status.CRASHED, "ValueError: on purpose"),
        ("sys.exit(0)", 1, Status.CRASHED, "sys.exit(0) was called before the work was done"),
        ("os._exit(0)", 1, None, "ended without saying how: something in it called os._exit(0)"),
        ("os._exit(255)", 255, None, "exited with 255"),
        ("SIGTERM", 143, Status.INTERRUPTED, "trial received SIGTERM"),
        ("SIGKILL", -9, None, "was killed by SIGKILL"),
        ("SIGSEGV", -11, None, "was killed by SIGSEGV"),
    ],
)
def test_knows_how_a_child_ended(
    start_method: str, tmp_path: Path, way: str, exit_code: int, status: Status | None, words: str
) -> None:
    child, _ = run_child(processes.end_by, handover_for(start_method, tmp_path), way)

    assert child.exit_code == exit_code
    assert (child.outcome.status if child.outcome else None) is status
    assert words in child.how_it_ended()
    assert f"pid {child.process.pid}" in child.how_it_ended()


def test_a_child_ignores_sigint_and_leaves_it_to_its_parent(start_method: str, tmp_path: Path) -> None:
    child, _ = run_child(processes.end_by, handover_for(start_method, tmp_path), "SIGINT")

    assert child.exit_code == 0


def test_a_request_is_handed_down_and_obeyed(start_method: str, tmp_path: Path) -> None:
    child = start_child(
        processes.work_until_stopped, handover_for(start_method, tmp_path), args=(str(tmp_path / "on"),)
    )
    stop_soon((tmp_path / "on").exists, deadline_s=10)
    began = time.monotonic()
    Supervisor([child]).run()

    assert child.exit_code == 143
    assert child.outcome is not None
    assert child.outcome.cause == "SIGTERM"
    assert time.monotonic() - began < 2


def test_a_request_that_comes_before_the_child_is_ready_is_not_lost(start_method: str, tmp_path: Path) -> None:
    child = start_child(processes.work_until_stopped, handover_for(start_method, tmp_path))
    stop_soon(lambda: True, deadline_s=10)
    Supervisor([child]).run()

    assert child.exit_code == 143


@pytest.mark.parametrize("target", [processes.ignore_requests, processes.hold_the_gil])
def test_a_child_that_ignores_a_request_is_gone_at_the_deadline(
    start_method: str, tmp_path: Path, target: Callable[..., None]
) -> None:
    child = start_child(target, handover_for(start_method, tmp_path), args=(str(tmp_path / "on"),))
    stop_soon((tmp_path / "on").exists, deadline_s=2.5)
    time.sleep(0.3)  # the one that holds the interpreter's lock is in native code by then
    began = time.monotonic()
    Supervisor([child]).run()

    assert time.monotonic() - began < 2.5
    assert child.exit_code in (143, -9)
    if child.exit_code == -9:
        assert child.how_it_ended() == f"trial (pid {child.process.pid}) did not stop in time and was killed"
    else:
        assert "cut at the deadline" in child.how_it_ended()


def test_a_child_that_cannot_even_cut_itself_is_killed_and_named(start_method: str, tmp_path: Path) -> None:
    child = start_child(processes.hold_the_gil, handover_for(start_method, tmp_path), args=(str(tmp_path / "on"),))
    stop_soon((tmp_path / "on").exists, deadline_s=2.0)
    time.sleep(0.3)
    Supervisor([child]).run()

    assert child.exit_code == -9
    assert child.how_it_ended() == f"trial (pid {child.process.pid}) did not stop in time and was killed"


def test_a_crash_stops_the_siblings_and_the_first_failure_is_told(start_method: str, tmp_path: Path) -> None:
    healthy = start_child(processes.work_until_stopped, handover_for(start_method, tmp_path, role=Role.RANK, rank=0))
    failing = start_child(
        processes.end_by, handover_for(start_method, tmp_path, role=Role.RANK, rank=1), args=("raise",)
    )
    supervisor = Supervisor([healthy, failing])
    supervisor.run()

    assert supervisor.first_failure is failing
    assert failing.how_it_ended() == f"rank1 (pid {failing.process.pid}): ValueError: on purpose"
    assert healthy.outcome is not None
    assert healthy.outcome.status is Status.INTERRUPTED
    assert "rank1" in (healthy.outcome.cause or "")


@pytest.mark.slow
@pytest.mark.parametrize("target", [processes.work_until_stopped, processes.ignore_requests, processes.hold_the_gil])
def test_below_a_killed_trial_nothing_is_left_five_seconds_later(
    start_method: str, tmp_path: Path, target: Callable[..., None]
) -> None:
    trial = start_child(processes.start_ranks, handover_for(start_method, tmp_path), args=(2, str(tmp_path), target))
    until(lambda: (tmp_path / "rank0").exists() and (tmp_path / "rank1").exists(), 60)
    ranks = [psutil.Process(r.key.pid) for r in process_registry.living(tmp_path) if r.identity.role is Role.RANK]
    time.sleep(0.3)
    began = time.monotonic()
    trial.kill()
    Supervisor([trial]).run()
    killed = end_subtree(str(tmp_path))

    assert len(ranks) == 2
    assert not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks)
    assert time.monotonic() - began < 5
    assert len(killed) == (2 if target is processes.hold_the_gil else 0), "those that can still run code end in order"


def test_ranks_of_a_killed_trial_end_in_order_and_say_why(start_method: str, tmp_path: Path) -> None:
    target = processes.work_until_stopped
    trial = start_child(processes.start_ranks, handover_for(start_method, tmp_path), args=(1, str(tmp_path), target))
    until((tmp_path / "rank0").exists, 60)
    trial.kill()
    Supervisor([trial]).run()
    end_subtree(str(tmp_path))

    (rank,) = [record for record in process_registry.read_run(tmp_path) if record.identity.role is Role.RANK]
    assert rank.outcome is not None
    assert rank.outcome["cause"] == f"its parent (pid {trial.process.pid}) is gone"


def test_a_trial_that_fails_ends_the_rank_it_has_started(start_method: str, tmp_path: Path) -> None:
    """The standard library would wait for the rank for ever, and the rank for its trial."""
    began = time.monotonic()
    child, _ = run_child(processes.leave_a_rank_behind, handover_for(start_method, tmp_path), str(tmp_path))

    assert child.how_it_ended().endswith("ValueError: after starting a rank")
    assert time.monotonic() - began < 15
    assert process_registry.living(tmp_path) == []


def test_a_child_of_user_code_ends_with_its_killed_parent(start_method: str, tmp_path: Path) -> None:
    trial = start_child(processes.start_user_child, handover_for(start_method, tmp_path), args=(str(tmp_path / "on"),))
    until((tmp_path / "on").exists, 30)
    trial.kill()
    began = time.monotonic()
    Supervisor([trial]).run()

    assert trial.exit_code == -9
    assert time.monotonic() - began < 1, "the guard sees to it that its child is gone"


def test_a_message_of_a_child_arrives_with_its_kind(start_method: str, tmp_path: Path) -> None:
    _, messages = run_child(processes.send_state, handover_for(start_method, tmp_path), ["os", "no_such_module"])

    assert messages == {"loaded": ["os"]}


def test_an_outcome_that_did_not_come_through_the_pipe_is_read_from_the_record(tmp_path: Path) -> None:
    child = start_child(processes.ignore_requests, handover_for("spawn", tmp_path), args=(str(tmp_path / "on"),))
    until((tmp_path / "on").exists, 30)
    os.kill(child.process.pid or 0, signal.SIGTERM)
    stop_soon(lambda: True, deadline_s=2.0)
    Supervisor([child]).run()

    (record,) = process_registry.read_run(tmp_path)
    assert json.loads(record.path.read_text())["outcome"]["exit_code"] == 143 if record.path else False
    assert child.outcome is not None
    assert "cut at the deadline" in (child.outcome.cause or "")


def test_without_a_folder_there_is_no_subtree_to_end() -> None:
    assert end_subtree(None) == []
