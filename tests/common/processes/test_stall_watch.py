"""A rank that makes no progress is named with its last step, and its stacks are kept."""

import signal
import time
from pathlib import Path

import pytest

from project.common.files.layout import RunLayout
from project.common.process_registry import ProcessRecord
from project.common.processes.child import start_child
from project.common.processes.identity import Identity, ProcessKey, Role
from project.common.processes.outcome import Outcome, Status
from project.common.processes.stall_watch import StallWatch
from project.common.processes.supervision import Supervisor
from tests.helpers.processes import handover_for, step_then_hang, step_then_stop, step_then_wait, stop_own

pytestmark = pytest.mark.usefixtures("served")


def watch_ranks(
    run_dir: Path, *, steps: tuple[int, ...], start_method: str, limit_s: float, step_s: float = 1.1
) -> Supervisor:
    children = [
        start_child(
            step_then_hang,
            handover_for(start_method, run_dir, role=Role.RANK, rank=rank, world_size=len(steps)),
            args=(n_steps, step_s),
        )
        for rank, n_steps in enumerate(steps)
    ]
    supervisor = Supervisor(children, stall_watch=StallWatch(str(run_dir), limit_s=limit_s))
    supervisor.run()
    return supervisor


def test_names_the_rank_that_is_behind_and_ends_all(tmp_path: Path, start_method: str) -> None:
    began = time.monotonic()

    supervisor = watch_ranks(tmp_path, steps=(5, 3), start_method=start_method, limit_s=3.0)

    pid = supervisor.children[1].process.pid
    log = RunLayout(tmp_path).process_log("rank1", pid or 0)
    assert supervisor.stalled is not None
    assert supervisor.stalled.startswith(f"rank1 (pid {pid}) made no step for ")
    assert "while training, last step 3" in supervisor.stalled
    assert str(log) in supervisor.stalled
    assert "step_then_hang" in log.read_text()
    assert all(child.exit_code not in (None, 0) for child in supervisor.children)
    assert time.monotonic() - began < 60


def test_names_the_rank_that_is_behind_also_when_steps_are_quicker_than_records(tmp_path: Path) -> None:
    """Both made all their steps within the second in which no record is written again."""
    supervisor = watch_ranks(tmp_path, steps=(50, 49), start_method="forkserver", limit_s=3.0, step_s=0.001)

    assert supervisor.stalled is not None
    assert supervisor.stalled.startswith("rank1 ")
    assert "last step 49;" in supervisor.stalled


def test_of_two_at_the_same_step_the_one_that_waits_for_the_other_is_not_blamed(tmp_path: Path) -> None:
    """It had made its step first, and so was silent for longer."""
    children = [
        start_child(
            step_then_wait,
            handover_for("forkserver", tmp_path, role=Role.RANK, rank=rank, world_size=2),
            args=(str(tmp_path), rank == 1),
        )
        for rank in range(2)
    ]
    supervisor = Supervisor(children, stall_watch=StallWatch(str(tmp_path), limit_s=3.0))
    supervisor.run()

    assert supervisor.stalled is not None
    assert supervisor.stalled.startswith(f"rank1 (pid {children[1].process.pid}) made no step")
    assert "rank0" not in supervisor.stalled


def test_a_stopped_rank_is_named_and_not_the_one_that_waits_for_it(tmp_path: Path) -> None:
    children = [
        start_child(
            step_then_wait if rank == 0 else step_then_stop,
            handover_for("forkserver", tmp_path, role=Role.RANK, rank=rank, world_size=2),
            args=(str(tmp_path), False) if rank == 0 else (str(tmp_path),),
        )
        for rank in range(2)
    ]
    supervisor = Supervisor(children, stall_watch=StallWatch(str(tmp_path), limit_s=3.0))
    supervisor.run()

    assert supervisor.stalled is not None
    assert supervisor.stalled.startswith(f"{children[1].name} was stopped (SIGSTOP)")


@pytest.mark.parametrize(("role", "state"), [(Role.TRIAL, "supervising"), (Role.RANK, "preparing data")])
def test_a_process_that_is_stopped_is_named_in_any_state(
    tmp_path: Path, start_method: str, role: Role, state: str
) -> None:
    place = {"rank": 0} if role is Role.RANK else {}
    child = start_child(stop_own, handover_for(start_method, tmp_path, role=role, **place), args=(state,))
    supervisor = Supervisor([child], stall_watch=StallWatch(str(tmp_path), limit_s=1.0))
    supervisor.run()

    assert supervisor.stalled is not None
    assert supervisor.stalled.startswith(f"{child.name} was stopped (SIGSTOP) for ")
    assert child.exit_code == -signal.SIGKILL


def _record(role: Role, state: str, silent_s: float, *, ended: bool = False) -> ProcessRecord:
    then = time.time() - silent_s
    place = {"rank": 0} if role is Role.RANK else {}
    outcome = Outcome(status=Status.COMPLETED, exit_code=0).as_dict() | {"time": then, "step": 1} if ended else None
    return ProcessRecord(
        key=ProcessKey.own(),
        identity=Identity(role=role, **place),
        parent_pid=1,
        started=then,
        history=[(state, then)],
        outcome=outcome,
    )


@pytest.mark.parametrize(
    ("role", "state", "ended", "limit_s"),
    [
        (Role.RANK, "training", False, 30.0),
        (Role.RANK, "saving", False, 30.0),
        (Role.RANK, "starting", False, 90.0),
        (Role.RANK, "building managers", False, 90.0),
        (Role.RANK, "a state of the user's own", False, 90.0),
        (Role.RANK, "closing", False, 90.0),
        (Role.RANK, "closing", True, 90.0),
        (Role.RANK, "preparing data", False, None),
        (Role.TRIAL, "starting", False, 90.0),
        (Role.TRIAL, "closing", True, 90.0),
        (Role.TRIAL, "supervising", False, None),
        (Role.TRIAL, "running the task", False, None),
        (Role.WORKER, "loading", False, None),
    ],
)
def test_each_state_but_the_long_ones_has_a_limit(
    tmp_path: Path, role: Role, state: str, ended: bool, limit_s: float | None
) -> None:
    watch = StallWatch(str(tmp_path), limit_s=30.0)
    silent = _record(role, state, (limit_s or 10.0**6) - 5, ended=ended)
    too_silent = _record(role, state, (limit_s or 10.0**6) + 5, ended=ended)

    assert watch._without_progress([silent]) == []
    assert watch._without_progress([silent]) == []
    assert watch._without_progress([too_silent]) == []  # a machine that slept: the next sign may be near
    assert watch._without_progress([too_silent]) == ([too_silent] if limit_s else [])


def test_says_nothing_while_steps_are_made(tmp_path: Path) -> None:
    supervisor = watch_ranks(tmp_path, steps=(-60,), start_method="forkserver", limit_s=4.0)

    assert supervisor.stalled is None
    assert supervisor.children[0].exit_code == 0


def test_preparing_may_take_longer_than_a_step(tmp_path: Path) -> None:
    supervisor = watch_ranks(tmp_path, steps=(0,), start_method="forkserver", limit_s=0.5)

    assert supervisor.stalled is None
    assert supervisor.children[0].exit_code == 0
