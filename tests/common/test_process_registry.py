"""Who is alive, as what, in which state, and how it ended: told by small files that are never torn."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from project.common import live_runs, process_registry
from project.common.errors import StorageError
from project.common.process_registry import ProcessRecord
from project.common.processes.identity import Identity, ProcessKey, Role
from project.common.processes.outcome import outcome_of
from tests.helpers import processes
from tests.helpers.processes import handover_for
from tests.helpers.waiting import until


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    process_registry.forget()


def register(run_dir: Path, role: Role = Role.RANK) -> ProcessRecord:
    record = process_registry.register(Identity(role=role, run_dir=str(run_dir), rank=0), parent_pid=os.getppid())
    assert record is not None
    return record


def read_one(run_dir: Path) -> ProcessRecord:
    (record,) = process_registry.read_run(run_dir)
    return record


def test_a_process_without_a_run_folder_has_no_record() -> None:
    assert process_registry.register(Identity(role=Role.RANK), parent_pid=1) is None

    process_registry.set_state("training")
    process_registry.heartbeat(1)
    assert process_registry.own_record() is None


def test_a_record_says_who_and_where_for_ever(tmp_path: Path) -> None:
    register(tmp_path)

    record = read_one(tmp_path)
    assert record.key == ProcessKey.own()
    assert record.identity.label == "rank0"
    assert record.state == "starting"


def test_states_are_kept_in_order_with_their_times(tmp_path: Path) -> None:
    register(tmp_path)
    for state in ("importing", "training", "training", "saving"):
        process_registry.set_state(state)

    history = read_one(tmp_path).history
    assert [state for state, _ in history] == ["starting", "importing", "training", "saving"]
    assert [when for _, when in history] == sorted(when for _, when in history)


def test_records_are_written_at_most_once_a_second_and_the_last_step_is_always_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(tmp_path)
    for step in range(100):
        process_registry.heartbeat(step)
    (record,) = (tmp_path / "processes").glob("*.json")
    assert json.loads(record.read_text())["heartbeat"] is None
    assert (read_one(tmp_path).heartbeat or {})["step"] == 99

    monkeypatch.setattr(process_registry, "HEARTBEAT_INTERVAL_S", 0.0)
    process_registry.heartbeat(100)
    assert (read_one(tmp_path).heartbeat or {})["step"] == 100


def test_the_first_outcome_stands(tmp_path: Path) -> None:
    register(tmp_path)
    process_registry.finish(outcome_of(ValueError("first")))
    process_registry.finish(outcome_of(None))

    record = read_one(tmp_path)
    assert record.state == "ended"
    assert (record.outcome or {})["cause"] == "ValueError: first"


def test_a_process_that_is_gone_without_an_outcome_was_killed(tmp_path: Path) -> None:
    record = register(tmp_path)
    assert record.path is not None
    gone = replace(record, key=replace(record.key, start_time="1"))
    record.path.write_text(json.dumps(gone.as_dict()))

    assert read_one(tmp_path).state == "killed"
    assert process_registry.living(tmp_path) == []


def test_what_is_no_record_is_named_and_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    register(tmp_path)
    (tmp_path / "processes" / "rank9-1.json").write_text("{}")

    assert read_one(tmp_path).identity.rank == 0
    assert "rank9-1.json is not a process record" in caplog.text


def test_a_full_disk_costs_the_record_and_not_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    record = register(tmp_path)
    assert record.path is not None
    record.path.unlink()
    record.path.mkdir()

    process_registry.set_state("training")

    assert "could not be written" in caplog.text


def test_points_to_live_runs_from_the_state_folder(tmp_path: Path) -> None:
    pointer = live_runs.point_to_run(str(tmp_path), ProcessKey.own())
    runs = live_runs.pointed_runs()
    assert pointer is not None
    pointer.unlink()

    assert [(run.run_dir, run.main) for run in runs] == [(tmp_path, ProcessKey.own())]
    assert live_runs.pointed_runs() == []


def test_a_state_folder_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))

    assert live_runs.point_to_run(str(tmp_path), ProcessKey.own()) is None
    assert "is not writable" in caplog.text


def test_kills_what_is_left_of_a_run_but_not_main_nor_strangers(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    main = register(tmp_path, Role.MAIN)
    child = processes.start_child(
        processes.ignore_requests, handover_for("spawn", tmp_path), args=(str(tmp_path / "on"),)
    )
    until((tmp_path / "on").exists, 30)
    taken_over = replace(main, identity=Identity(role=Role.RANK, rank=3))
    taken_over.key = replace(main.key, pid=stranger.pid, start_time="1")  # the pid is a stranger's by now
    (tmp_path / "processes" / "rank3-1.json").write_text(json.dumps(taken_over.as_dict()))

    killed = process_registry.kill_remaining(tmp_path)

    assert [record.key.pid for record in killed] == [child.process.pid]
    assert stranger.poll() is None
    child.process.join(5)
    child.control.close() if child.control else None
    stranger.communicate(b"\n", timeout=10)


def test_the_newest_record_of_a_pid_counts(tmp_path: Path) -> None:
    record = register(tmp_path)
    older = replace(record, started=record.started - 10, identity=replace(record.identity, rank=5))
    (tmp_path / "processes" / "rank5-x.json").write_text(json.dumps(older.as_dict()))

    found = process_registry.find_record(tmp_path, os.getpid())

    assert found is not None
    assert found.identity.rank == 0


def test_a_long_life_leaves_a_gap_in_the_middle_of_its_states(tmp_path: Path) -> None:
    register(tmp_path)
    for number in range(3000):
        process_registry.set_state(f"state {number}")

    history = read_one(tmp_path).history
    assert len(history) <= process_registry.MOST_STATES
    assert [state for state, _ in history[:2]] == ["starting", "state 0"]
    assert history[-1][0] == "state 2999"
    assert [when for _, when in history] == sorted(when for _, when in history)
    assert process_registry.LEFT_OUT in [state for state, _ in history]


def test_a_folder_that_was_removed_ends_what_is_running_and_is_not_made_anew(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    register(run_dir)
    shutil.rmtree(run_dir)

    with pytest.raises(StorageError, match="run: the run's folder was removed or replaced while it ran"):
        until(lambda: process_registry.heartbeat(1), 10, what="the heartbeat that looks")
    with pytest.raises(StorageError, match="removed or replaced"):
        register(run_dir)
    assert not run_dir.exists()
