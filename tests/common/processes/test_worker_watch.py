"""A rank notices the death of a worker at once and says whose, how and where; an orderly end alarms nobody."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from project.common import process_registry
from project.common.processes.child import start_child
from project.common.processes.identity import Role
from project.common.processes.supervision import Supervisor
from tests.helpers import loaders
from tests.helpers.processes import handover_for, run_child
from tests.helpers.waiting import until

pytestmark = pytest.mark.slow  # a spawned worker imports torch


def workers_of(run_dir: Path) -> list[process_registry.ProcessRecord]:
    """Records of the living workers."""
    return [record for record in process_registry.living(run_dir) if record.identity.role is Role.WORKER]


@pytest.mark.case("27")
@pytest.mark.parametrize("seconds", [0.0, 30.0], ids=["idle", "busy"])
def test_a_killed_worker_ends_its_rank_at_once_and_is_named(start_method: str, tmp_path: Path, seconds: float) -> None:
    handover = handover_for(start_method, tmp_path, role=Role.RANK, rank=1, world_size=2)
    rank = start_child(loaders.read_slowly, handover, args=(str(tmp_path), seconds))
    until(lambda: (tmp_path / "worker0").exists() and (tmp_path / "worker1").exists(), 60)
    time.sleep(0.2)
    worker = next(record for record in workers_of(tmp_path) if record.identity.worker == 1)
    began = time.monotonic()
    os.kill(worker.key.pid, signal.SIGKILL)
    Supervisor([rank]).run()

    assert time.monotonic() - began < (2 if start_method == "forkserver" else 3), "torch alone takes 5 s"
    told = f"rank 1: DataLoader worker 1 (pid {worker.key.pid}) was killed by SIGKILL"
    assert told in rank.how_it_ended()
    assert "(likely out of memory, or killed by somebody)" in rank.how_it_ended()
    assert " at row " in rank.how_it_ended()


@pytest.mark.case("27")
@pytest.mark.parametrize(
    ("do", "words"),
    [
        ("kill", "was killed by SIGKILL at row 9 (likely out of memory"),
        ("segv", "was killed by SIGSEGV at row 9 (likely a crash in native code)"),
        ("exit", "exited with 3 at row 9"),
        ("sysexit0", "exited with 1 at row 9 (sys.exit(0) was called before the work was done)"),
    ],
)
def test_a_worker_that_dies_at_a_row_is_told_with_it(start_method: str, tmp_path: Path, do: str, words: str) -> None:
    environ = dict(os.environ) | {"PROBE": f"worker=1,step=9,do={do}"}
    handover = handover_for(start_method, tmp_path, role=Role.RANK, rank=0, environ=environ)
    rank, _ = run_child(loaders.end_a_worker_by_probe, handover)

    assert rank.exit_code == 1
    assert "rank 0: DataLoader worker 1 (pid " in rank.how_it_ended()
    assert words in rank.how_it_ended()


def test_an_exception_in_a_data_set_is_told_as_such(start_method: str, tmp_path: Path) -> None:
    environ = dict(os.environ) | {"PROBE": "worker=1,step=9,do=raise"}
    handover = handover_for(start_method, tmp_path, role=Role.RANK, rank=0, environ=environ)
    rank, _ = run_child(loaders.end_a_worker_by_probe, handover)

    assert "ProbeError: Caught ProbeError in DataLoader worker process 1" in rank.how_it_ended()


def test_a_batch_that_cannot_be_sent_is_told(start_method: str, tmp_path: Path) -> None:
    """The standard library drops it, and the rank waited for it until it counted as stalled."""
    rank, _ = run_child(loaders.read_unsendable, handover_for(start_method, tmp_path, role=Role.RANK, rank=0))

    assert "rank 0: DataLoader worker " in rank.how_it_ended()
    assert "(a batch could not be sent: ValueError: one of a kind)" in rank.how_it_ended()


@pytest.mark.parametrize(
    ("fault", "told"), [(0, "a batch could not be sent"), (signal.SIGKILL, "killed by SIGKILL (likely out of memory")]
)
def test_a_fault_is_told_though_its_rank_has_let_the_worker_go_by_then(
    start_method: str, tmp_path: Path, fault: int, told: str
) -> None:
    """On a busy machine the watch may look at a dead worker later than what reads from it fails."""
    handover = handover_for(start_method, tmp_path, role=Role.RANK, rank=0)
    rank, _ = run_child(loaders.notice_before_the_watch, handover, fault)

    assert "rank 0: DataLoader worker 0 (pid " in rank.how_it_ended()
    assert told in rank.how_it_ended()


def test_what_torch_raises_while_an_error_is_looked_at_is_an_outcome_too(tmp_path: Path, served: int) -> None:
    """It escaped, and the rank ended without a cause."""
    handover = handover_for("forkserver", tmp_path, role=Role.RANK, rank=0)
    rank, _ = run_child(loaders.fail_while_torch_interrupts, handover)

    assert rank.outcome is not None
    assert "Segmentation fault" in rank.how_it_ended()


@pytest.mark.parametrize("persistent", [False, True])
def test_the_end_of_an_epoch_alarms_nobody(start_method: str, tmp_path: Path, persistent: bool) -> None:
    handover = handover_for(start_method, tmp_path, role=Role.RANK, rank=0)
    rank, messages = run_child(loaders.read_epochs, handover, 6, persistent)

    assert rank.exit_code == 0, rank.how_it_ended()
    assert messages["epoch"] == list(range(6))
    workers = [r for r in process_registry.read_run(tmp_path) if r.identity.role is Role.WORKER]
    assert sorted(r.identity.worker or 0 for r in workers) == ([0, 1] if persistent else [0, 0, 1, 1])
    assert {(r.outcome or {}).get("exit_code") for r in workers} <= {0, 143}


def test_workers_whose_stream_is_exhausted_may_end(start_method: str, tmp_path: Path) -> None:
    """torch lets such a worker go without its event; that was taken for a death."""
    handover = handover_for(start_method, tmp_path, role=Role.RANK, rank=0)
    rank, messages = run_child(loaders.read_stream, handover, 2.0)

    assert rank.exit_code == 0, rank.how_it_ended()
    assert messages["rows"] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.case("56")
def test_leaving_an_epoch_early_takes_less_than_three_seconds(start_method: str, tmp_path: Path) -> None:
    handover = handover_for(start_method, tmp_path, role=Role.RANK, rank=0)
    rank, messages = run_child(loaders.break_out, handover, 1000)

    assert rank.exit_code == 0, rank.how_it_ended()
    assert time.monotonic() - messages["left"] < 3


@pytest.mark.case("56")
def test_workers_that_ignore_their_end_do_not_hold_up_a_failing_rank(start_method: str, tmp_path: Path) -> None:
    """The standard library waits for such a worker without a limit."""
    handover = handover_for(start_method, tmp_path, role=Role.RANK, rank=0)
    began = time.monotonic()
    rank, _ = run_child(loaders.fail_beside_stubborn_workers, handover)

    assert rank.exit_code == 1
    assert time.monotonic() - began < 30
    assert process_registry.living(tmp_path) == []


def test_workers_end_with_their_killed_rank(start_method: str, tmp_path: Path) -> None:
    handover = handover_for(start_method, tmp_path, role=Role.RANK, rank=0)
    rank = start_child(loaders.read_slowly, handover, args=(str(tmp_path), 30.0))
    until(lambda: (tmp_path / "worker0").exists() and (tmp_path / "worker1").exists(), 60)
    workers = [psutil.Process(record.key.pid) for record in workers_of(tmp_path)]
    rank.kill()
    Supervisor([rank]).run()

    until(lambda: not any(w.is_running() and w.status() != psutil.STATUS_ZOMBIE for w in workers), 2)


@pytest.mark.case("17")
def test_a_lambda_in_a_loader_is_named(start_method: str, tmp_path: Path) -> None:
    handover = handover_for(start_method, tmp_path, role=Role.RANK, rank=0)
    rank, _ = run_child(loaders.read_lambda, handover)

    assert "collate_fn: a lambda cannot cross; define a function at module level" in rank.how_it_ended()
    assert [r for r in process_registry.read_run(tmp_path) if r.identity.role is Role.WORKER] == []


def test_works_with_the_pinning_thread(start_method: str, tmp_path: Path) -> None:
    handover = handover_for(start_method, tmp_path, role=Role.RANK, rank=0)
    rank, messages = run_child(loaders.read_with_pinning_thread, handover)

    assert rank.exit_code == 0, rank.how_it_ended()
    assert messages["rows"] == list(range(6))
