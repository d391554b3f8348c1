"""A trial that fails, in whatever way, is one failure: told with its cause, kept in its folder, and the rest go on."""

import os
from pathlib import Path

import pytest

from tests.helpers import sweep_runs as sweeps
from tests.helpers.sweep_runs import BASIC, GRID, Sweep

pytestmark = pytest.mark.slow

CAUSES = {
    "raise": "ArithmeticError: on purpose",
    "exit0": "sys.exit(0) was called before the work was done",
    "exit3": "sys.exit(3) was called before the work was done",
    "osexit0": "ended without saying how: something in it called os._exit(0)",
    "osexit3": "exited with 3",
    "segv": "was killed by SIGSEGV",
    "kill": "was killed by SIGKILL",
    "child": "ArithmeticError: left sleep",
}
TWO_RANKS = ("trainer.accelerator=cpu", "trainer.devices=2", "+task.run.rank=1")


def search(*ways: str) -> tuple[str, ...]:
    """One trial for each way to end, and one that ends well."""
    return (GRID, f"+task.run.way=choice({','.join(ways)},ok)", "hydra.sweeper.n_jobs=2")


def check(folder: Path, ways: tuple[str, ...], *, code: int, text: str) -> None:
    """Each way was one failure with its cause, in its folder and at the end; the other trial was completed."""
    sweep = Sweep.of(folder)
    outcomes = sweep.outcomes()
    assert code == 1, text
    assert sorted(sweep.states()) == ["COMPLETE"] + ["FAIL"] * len(ways)
    assert f"trials: 1 completed, {len(ways)} failed" in text
    for number, outcome in outcomes.items():
        way = outcome["params"]["+task.run.way"]
        if way == "ok":
            assert outcome["status"] == "completed"
            continue
        assert outcome["status"] == "crashed"
        assert CAUSES[way] in outcome["cause"]
        assert f"  trial {number}: {outcome['cause']}\n    {sweep.folder}/{number}\n" in text
        log = sweep.log(number)
        assert f"about to end by {way}" in log
        assert way != "raise" or 'raise ArithmeticError("on purpose")' in log
        assert way != "segv" or "Fatal Python error: Segmentation fault" in log
    for number in outcomes:
        assert not sweep.alive(number)


@pytest.mark.case("04")
@pytest.mark.parametrize(
    ("start_method", "ways"),
    [("forkserver", tuple(CAUSES)), ("spawn", ("raise", "osexit0", "kill"))],
    ids=["forkserver", "spawn"],
)
def test_each_way_to_fail_is_one_failure(
    start_method: str, ways: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = sweeps.run_here(tmp_path, "end_by", *search(*ways), f"processes.start_method={start_method}")

    check(tmp_path, ways, code=code, text=capfd.readouterr().out)


@pytest.mark.case("04")
@pytest.mark.parametrize(
    ("start_method", "ways"), [("forkserver", tuple(CAUSES)), ("spawn", ("kill",))], ids=["forkserver", "spawn"]
)
def test_a_rank_that_fails_is_one_failure_of_its_trial(
    start_method: str, ways: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = sweeps.run_here(tmp_path, "end_by", *search(*ways), *TWO_RANKS, f"processes.start_method={start_method}")

    text = capfd.readouterr().out
    check(tmp_path, ways, code=code, text=text)
    assert "rank1" in text


@pytest.mark.case("04")
def test_the_command_lists_failures_and_leaves_nothing(tmp_path: Path) -> None:
    before = set(os.listdir("/dev/shm"))

    with sweeps.started(tmp_path, "end_by", *search("raise", "kill", "child"), *TWO_RANKS) as tree:
        code = tree.wait(110)
        tree.assert_nothing_left()

    assert code == 1
    assert "trials: 1 completed, 3 failed" in tree.text
    assert tree.text.count("rank1 (pid ") >= 3
    assert not {name for name in sweeps.new_shared_memory(before) if str(tree.pid) in name}
    assert (Sweep.of(tmp_path).folder / "optimization_results.yaml").is_file()


def test_failures_of_hydras_own_sweeper_are_listed_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], served: int
) -> None:
    code = sweeps.run_here(
        tmp_path,
        "end_by",
        BASIC,
        f"hydra.sweep.dir={tmp_path}/jobs",
        "+task.run.way=kill,ok,raise",
        "hydra.launcher.n_jobs=2",
    )

    text = capfd.readouterr().err
    ends = {path.parent.name: sweeps.read_json(path) for path in (tmp_path / "jobs").glob("*/outcome.json")}
    assert code == 1
    assert {number: end["status"] for number, end in ends.items()} == {"0": "crashed", "1": "completed", "2": "crashed"}
    assert f"#2: ArithmeticError: on purpose ({tmp_path}/jobs/2)" in text
    assert "was killed by SIGKILL" in ends["0"]["cause"]
    assert "1 of 3 jobs completed" in text


LIMITS = {
    "grow": ("hydra.launcher.memory_limit_mb=1500", "out of memory: used"),
    "hang": ("hydra.launcher.timeout_min=0.15", "took longer than 0.15 min (hydra.launcher.timeout_min)"),
    "sleep": ("processes.stall_timeout_s=6", "made no step for"),
}


@pytest.mark.parametrize(
    ("way", "ranks"), [*((way, ()) for way in LIMITS), ("sleep", TWO_RANKS)], ids=[*LIMITS, "sleep of two ranks"]
)
def test_a_trial_over_a_limit_is_one_failure(
    way: str, ranks: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str], served: int
) -> None:
    limit, cause = LIMITS[way]

    code = sweeps.run_here(tmp_path, "end_by", *search(way), limit, *ranks)

    sweep = Sweep.of(tmp_path)
    outcomes = {one["params"]["+task.run.way"]: one for one in sweep.outcomes().values()}
    assert code == 1
    assert outcomes["ok"]["status"] == "completed"
    assert outcomes[way]["status"] == "crashed"
    assert cause in outcomes[way]["cause"]
    assert not sweep.alive(outcomes[way]["trial"])
    assert cause in capfd.readouterr().out


def test_a_free_slot_is_filled_while_a_failed_trials_remains_are_ended(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], served: int
) -> None:
    """A stubborn process that the first trial left is ended in seconds; a second trial begins meanwhile."""
    (tmp_path / "facts").mkdir()
    ways = ("hydra/sweeper=basic", "+task.run.way=stubborn,ok", "hydra.launcher.n_jobs=1")

    code = sweeps.run_here(tmp_path, "note", *ways, f"+task.run.folder={tmp_path}/facts")

    assert code == 1
    first, second = sweeps.facts(tmp_path / "facts")
    (jobs,) = (tmp_path / "sweeps" / "x").iterdir()
    assert second["began"] - first["ended"] < sweeps.read_json(jobs / "0" / "outcome.json")["seconds"] - 0.5
