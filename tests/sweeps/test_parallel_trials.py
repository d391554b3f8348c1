"""Trials that run at once: no barrier, no shared device, nothing that one leaves to the next."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import sweep_runs as sweeps
from tests.helpers.sweep_runs import BASIC, GRID, Sweep
from tests.helpers.waiting import until

pytestmark = pytest.mark.slow


def note(folder: Path, *more: str) -> list[dict[str, Any]]:
    """Runs a sweep whose trials note what they see; returns that, all having ended well."""
    (folder / "facts").mkdir()
    code = sweeps.run_here(folder, "note", *more, f"+task.run.folder={folder}/facts", "+task.run.way=ok")
    assert code == 0
    return sweeps.facts(folder / "facts")


@pytest.mark.case("48")
@pytest.mark.parametrize("sweeper", ["study", "basic"])
def test_as_many_trials_run_at_once_as_asked(sweeper: str, tmp_path: Path, served: int) -> None:
    search = (GRID, "seed=choice(1,2,3,4)") if sweeper == "study" else (BASIC, "seed=1,2,3,4")

    seen = note(
        tmp_path, *search, f"hydra.{'sweeper' if sweeper == 'study' else 'launcher'}.n_jobs=2", "+task.run.sleep_s=2"
    )

    assert len(seen) == 4
    assert sweeps.overlapping(seen) == 2


@pytest.mark.case("49")
def test_a_free_slot_is_filled_at_once(tmp_path: Path, served: int) -> None:
    """While the first trial is long, the other slot runs all the others."""
    long_first = (BASIC, "+task.run.sleep_s=15,0.1,0.1,0.1", "hydra.launcher.n_jobs=2")

    seen = note(tmp_path, *long_first)

    long = max(seen, key=lambda it: it["ended"] - it["began"])
    assert [one for one in seen if one is not long and one["ended"] > long["ended"]] == []


@pytest.mark.case("49")
def test_an_interrupt_loses_one_trial_and_no_batch(tmp_path: Path) -> None:
    ways = (GRID, "+task.run.way=choice(ok,work)", "hydra.sweeper.n_jobs=2")
    with sweeps.started(tmp_path, "end_by", *ways) as tree:
        done = until(lambda: list(tmp_path.glob("sweeps/x/*/outcome.json")) or tree.popen.poll() is not None, 90)

        tree.signal(signal.SIGINT)

        code = tree.wait(20)
        tree.assert_nothing_left()
    states = Sweep.of(tmp_path).states()
    assert done
    assert code == 130
    assert sorted(states) == ["COMPLETE", "FAIL", "WAITING"], "one was told as it came in, the other waits again"


def check_devices(seen: list[dict[str, Any]], per_trial: int) -> None:
    """No two trials that ran at once had a device in common."""
    for one in seen:
        devices = one["devices"].split(",")
        assert len(devices) == per_trial
        for other in seen:
            if other["trial"] != one["trial"] and one["began"] < other["ended"] and other["began"] < one["ended"]:
                assert not set(devices) & set(other["devices"].split(","))


@pytest.mark.case("50")
@pytest.mark.parametrize(("per_trial", "n_at_once"), [(1, 3), (2, 1)])
def test_no_two_live_trials_share_a_device(
    per_trial: int, n_at_once: int, tmp_path: Path, capfd: pytest.CaptureFixture[str], served: int
) -> None:
    pool = ("managers.cuda.pool=[a,b,c]", f"hydra.launcher.gpus_per_trial={per_trial}", "hydra.launcher.n_jobs=4")

    seen = note(tmp_path, BASIC, "+task.run.sleep_s=1.5,0.2,0.8,0.2,1,0.3", *pool)

    check_devices(seen, per_trial)
    assert len(seen) == 6
    assert sweeps.overlapping(seen) == n_at_once
    assert f"{n_at_once} trials at once, not 4: so many have devices" in capfd.readouterr().err


@pytest.mark.case("50")
def test_the_device_of_a_killed_trial_is_used_again(tmp_path: Path, served: int) -> None:
    (tmp_path / "facts").mkdir()
    search = (BASIC, "+task.run.way=kill,kill,ok", "managers.cuda.pool=[a]", f"+task.run.folder={tmp_path}/facts")

    code = sweeps.run_here(tmp_path, "note", *search)

    assert code == 1
    assert [one["devices"] for one in sweeps.facts(tmp_path / "facts")] == ["a", "a", "a"]


@pytest.mark.case("50")
def test_two_sweeps_share_one_pool(tmp_path: Path) -> None:
    (tmp_path / "facts").mkdir()
    pool = ("managers.cuda.pool=[shared-a,shared-b]", "hydra.launcher.n_jobs=2", f"+task.run.folder={tmp_path}/facts")
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    search = (BASIC, "+task.run.sleep_s=1", "seed=1,2,3", "+task.run.way=ok", *pool)
    with (
        sweeps.started(folders[0], "note", *search, "+task.run.prefix=one") as one,
        sweeps.started(folders[1], "note", *search, "+task.run.prefix=two") as two,
    ):
        assert (one.wait(110), two.wait(110)) == (0, 0), one.text + two.text

    seen = [fact | {"trial": fact["folder"]} for fact in sweeps.facts(tmp_path / "facts")]
    assert len(seen) == 6
    check_devices(seen, 1)


def test_more_devices_per_trial_than_there_are_is_one_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], served: int
) -> None:
    pool = ("managers.cuda.pool=[a,b]", "hydra.launcher.gpus_per_trial=3")

    code = sweeps.run_here(tmp_path, "note", BASIC, "seed=1,2", *pool)

    assert code == 2
    assert "a trial needs 3 devices, the pool has 2 (a, b)" in capfd.readouterr().err


def test_cores_are_divided_among_trials_and_ranks(tmp_path: Path, served: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = len(os.sched_getaffinity(0))

    seen = note(tmp_path, BASIC, "seed=1,2", "hydra.launcher.n_jobs=2", "trainer.devices=2", "trainer.accelerator=cpu")

    assert [one["threads"] for one in seen] == [str(max(1, cores // 4))] * 4


@pytest.mark.case("19")
def test_all_ranks_of_a_trial_have_its_values_and_folder(tmp_path: Path, served: int) -> None:
    ranks = ("trainer.devices=2", "trainer.accelerator=cpu", GRID, "+task.run.sleep_s=choice(0.1,0.2,0.3)")

    seen = note(tmp_path, *ranks)

    sweep = Sweep.of(tmp_path)
    of_trial = {n: {(it["folder"], it["slept_s"]) for it in seen if it["trial"] == n} for n in range(3)}
    assert sorted((it["trial"], it["rank"]) for it in seen) == [(n, rank) for n in range(3) for rank in range(2)]
    for trial in sweep.trials():
        assert of_trial[trial.number] == {(str(sweep.folder / str(trial.number)), trial.params["+task.run.sleep_s"])}
    assert sorted(sweep.layouts()) == [0, 1, 2]
    assert sweep.states() == ["COMPLETE"] * 3


@pytest.mark.case("46", "51")
def test_what_a_trial_changes_does_not_reach_the_next(tmp_path: Path, served: int) -> None:
    (tmp_path / "facts").mkdir()

    code = sweeps.run_here(tmp_path, "spoil", BASIC, "tags=[a],[b]", f"+task.run.folder={tmp_path}/facts")

    first, second = (
        {k: v for k, v in one.items() if k not in ("began", "pid")} for one in sweeps.facts(tmp_path / "facts")
    )
    assert code == 0
    assert first == second
    assert (first["variable"], first["patched"], first["group"], first["cuda"]) == (None, False, False, False)
