"""The sweep benchmark's own pieces: what it concludes from what trials left, and that it fails where it must."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from project.common.process_registry import ProcessRecord
from project.common.processes.identity import Identity, ProcessKey, Role
from benchmarks import sweep
from benchmarks.measure import BenchmarkError, Place
from benchmarks.sweep import SweepBenchmark, is_installed
from benchmarks.sweep_measure import (
    MB,
    gaps_s,
    growth,
    memory_growth,
    outcomes,
    require_equal_steps,
    run_watched,
    start_up_s,
)
from benchmarks.table import Row, print_table, write_results


def leave_outcome(folder: Path, name: str, *, at: float, status: str = "completed", step: int = 3) -> None:
    path = folder / name / "outcome.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"status": status, "result": {"step": step, "train_s": 2.0}}))
    os.utime(path, (at, at))


def record(role: Role, history: list[tuple[str, float]], **place: Any) -> ProcessRecord:
    identity = Identity(role=role, run_dir="x", **place)
    return ProcessRecord(key=ProcessKey.own(), identity=identity, parent_pid=1, started=history[0][1], history=history)


def ended(times: list[float]) -> list[dict[str, Any]]:
    return [{"at": at, "result": {"step": 3}} for at in times]


def test_trials_are_read_in_the_order_in_which_they_ended(tmp_path: Path) -> None:
    for name, at in (("0", 30.0), ("1", 10.0), ("2", 25.0)):
        leave_outcome(tmp_path, name, at=at)

    assert gaps_s(outcomes(tmp_path, 3)) == [15.0, 5.0]


@pytest.mark.parametrize(("status", "n_trials"), [("crashed", 1), ("completed", 2)])
def test_a_trial_that_failed_or_is_missing_is_an_error(status: str, n_trials: int, tmp_path: Path) -> None:
    leave_outcome(tmp_path, "0", at=1.0, status=status)

    with pytest.raises(BenchmarkError, match=f"trials completed, {n_trials} expected"):
        outcomes(tmp_path, n_trials)


def test_trials_of_other_lengths_are_not_compared() -> None:
    with pytest.raises(BenchmarkError, match=r"made \[3, 4\] steps"):
        require_equal_steps([ended([1.0]), [{"at": 2.0, "result": {"step": 4}}]])


def test_growth_compares_the_first_hundred_with_the_last() -> None:
    assert growth([1.0] * 100 + [7.0] * 300 + [2.0] * 100) == (1.0, 2.0)


def test_memory_is_that_of_main_while_the_first_and_the_last_trials_ended() -> None:
    samples = [(0.0, 9 * MB), (1.5, 50 * MB), (10.0, 90 * MB), (19.5, 60 * MB), (30.0, 9 * MB)]

    assert memory_growth(samples, ended([float(at) for at in range(1, 21)])) == (50.0, 60.0)


def test_memory_that_nobody_saw_is_an_error() -> None:
    with pytest.raises(BenchmarkError, match="take more trials"):
        memory_growth([(1.5, 1.0)], ended([float(at) for at in range(1, 21)]))


def test_a_watched_command_is_measured_and_its_failure_is_said(tmp_path: Path) -> None:
    place = Place(folder=tmp_path)

    assert run_watched(place, "good", "-c", "import time; time.sleep(0.5)")[0][1] > 0
    with pytest.raises(BenchmarkError, match="no luck"):
        run_watched(place, "bad", "-c", "import sys; sys.exit('no luck')")


def test_the_start_of_a_trial_ends_with_the_first_batch_of_the_slowest_rank() -> None:
    trial = record(Role.TRIAL, [("starting", 2.0)])
    ranks = [record(Role.RANK, [("starting", 2.5), ("training", at)], rank=i) for i, at in enumerate((2.75, 2.9))]

    assert start_up_s([trial, *ranks]) == pytest.approx(0.9)
    with pytest.raises(BenchmarkError, match="every rank"):
        start_up_s([trial, ranks[0], record(Role.RANK, [("starting", 2.5)], rank=1)])


def test_ours_is_judged_by_what_the_others_took(tmp_path: Path) -> None:
    seconds = {1: 10.0, 2: 6.0, "basic": 10.0, "joblib": 10.0, "submitit": 60.0}

    rows = SweepBenchmark(Place(folder=tmp_path))._compared(seconds, train_s=2.0)

    assert [(row.value, row.is_ok) for row in rows[:4]] == [(1.0, True), (0.6, True), (0.6, False), (0.1, True)]


def test_a_launcher_that_is_not_installed_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "find_spec", lambda name: None)
    benchmark = SweepBenchmark(Place(folder=tmp_path))
    rows = benchmark._compared({1: 10.0, 2: 6.0, "basic": 10.0}, train_s=2.0)

    print_table(rows, {"cores": 2, "memory_gb": 8, "load": 0.1})
    write_results(tmp_path / "sweep.json", rows, {})

    assert not is_installed("joblib")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "ours with 2 / joblib" in line]
    assert "not measured" in line
    assert "ok" not in line.split("joblib is")[0]
    assert [row["ok"] for row in json.loads((tmp_path / "sweep.json").read_text())["rows"]][2] is None


@pytest.mark.parametrize(("value", "code"), [(0.5, 0), (2.0, 1)])
def test_a_missed_aim_is_the_exit_code(value: float, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(what="start", value=value, unit="s", aim=1.0)
    monkeypatch.setattr(SweepBenchmark, "start_up", lambda self: [row])

    assert sweep.main(["--only", "start_up"]) == code


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_empty_trials_are_measured_with_both_launchers(tmp_path: Path) -> None:
    rows = SweepBenchmark(Place(folder=tmp_path), n_trials=6).empty()

    overhead, last, tpe, memory = rows
    assert (overhead.unit, overhead.aim) == ("ms", 60.0)
    assert last.aim == 1.5
    assert tpe.aim is None
    assert memory.value is not None
    assert 0.3 < memory.value < 3
