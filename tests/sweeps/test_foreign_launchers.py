"""Sweeps on other launchers than ours: each job in its own folder, and none ends the others."""

import signal
from pathlib import Path

import pytest
import yaml

from tests.helpers import sweep_runs as sweeps
from tests.helpers.sweep_runs import BASIC, GRID, Sweep
from tests.helpers.tree import Tree
from tests.helpers.waiting import until

pytestmark = pytest.mark.slow

LAUNCHERS = {
    "basic": ("hydra/launcher=basic",),
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
}
SAID_ONCE = "runs trials in batches and has its own guarantees; hydra/launcher=trials"


@pytest.mark.case("68")
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_study_on_another_launcher_keeps_trials_apart(tmp_path: Path, launcher: str) -> None:
    search = ("+task.run.way=choice(ok,raise,kill)", GRID, "hydra.sweeper.n_jobs=2")

    with sweeps.started(tmp_path, "end_by", *search, *LAUNCHERS[launcher]) as tree:
        code = tree.wait(110)
        tree.assert_nothing_left()

    sweep = Sweep.of(tmp_path)
    outcomes = {one["params"]["+task.run.way"]: one for one in sweep.outcomes().values()}
    assert code == 1, tree.text
    statuses = {way: one["status"] for way, one in outcomes.items()}
    assert statuses == {"ok": "completed", "raise": "crashed", "kill": "crashed"}
    assert outcomes["raise"]["cause"] == "ArithmeticError: on purpose"
    assert "was killed by SIGKILL" in outcomes["kill"]["cause"]
    assert outcomes["ok"]["result"]["metrics"] == {"loss": 0.5}
    assert sorted(sweep.states()) == ["COMPLETE", "FAIL", "FAIL"]
    assert tree.text.count(SAID_ONCE) == 1
    assert not (tmp_path / "runs").exists(), "the jobs' folders are the trials'"


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_hydras_own_sweeper_on_another_launcher_uses_hydras_folders(tmp_path: Path, launcher: str) -> None:
    sweep_dir = f"hydra.sweep.dir={tmp_path}/jobs"

    with sweeps.started(tmp_path, "end_by", BASIC, "+task.run.way=raise,ok", sweep_dir, *LAUNCHERS[launcher]) as tree:
        code = tree.wait(110)
        tree.assert_nothing_left()

    ends = {path.parent.name: sweeps.read_json(path) for path in (tmp_path / "jobs").glob("*/outcome.json")}
    assert code == 1, tree.text
    assert {name: end["status"] for name, end in ends.items()} == {"0": "crashed", "1": "completed"}
    assert "task.run.way=ok" in yaml.safe_load((tmp_path / "jobs" / "1" / "overrides.yaml").read_text())[-1]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("sweeper", [(), (BASIC, "+task.run.way=ok,raise")], ids=["study", "basic"])
def test_a_launcher_whose_processes_may_start_none_is_refused_before_any_job(
    tmp_path: Path, sweeper: tuple[str, ...]
) -> None:
    """Each job of Hydra's own sweeper was refused in its own process, and in half of the runs the pool never ended."""
    sweep_dir = f"hydra.sweep.dir={tmp_path}/jobs"
    pool = (*LAUNCHERS["joblib"], "hydra.launcher.backend=multiprocessing")
    with sweeps.started(tmp_path, "end_by", *sweeper, *pool, sweep_dir) as tree:
        code = tree.wait(110)
        tree.assert_nothing_left()

    assert code == 2
    text = "hydra.launcher: its processes are daemonic and may start none; use hydra.launcher.backend=loky"
    assert tree.text.count(text) == len(tree.text.strip().splitlines()) == 1
    assert not (tmp_path / "jobs").exists()


def test_a_misspelt_metric_ends_a_study_on_another_launcher_at_its_first_batch(tmp_path: Path) -> None:
    search = ("seed=range(1,9)", "hydra.sweeper.n_trials=4", "+task.run.way=ok", "objective.metric=los")
    with sweeps.started(tmp_path, "end_by", *search, *LAUNCHERS["basic"]) as tree:
        code = tree.wait(110)
        tree.assert_nothing_left()

    assert code == 2, tree.text
    assert tree.text.strip().splitlines()[-1] == "objective.metric: 'los' is not logged; use one of loss"
    assert len(Sweep.of(tmp_path).states()) == 1


def test_a_job_is_not_written_over_another_run(tmp_path: Path) -> None:
    again = (BASIC, *LAUNCHERS["basic"], f"hydra.sweep.dir={tmp_path}/jobs", "+task.run.way=ok")
    with sweeps.started(tmp_path, "end_by", *again) as tree:
        assert tree.wait(110) == 0, tree.text
    before = (tmp_path / "jobs" / "0" / "outcome.json").read_bytes()

    with sweeps.started(tmp_path, "end_by", *again) as tree:
        code = tree.wait(110)

    assert code == 2
    assert f"{tmp_path}/jobs/0 holds another run; give another hydra.sweep.dir or hydra.sweep.subdir" in tree.text
    assert (tmp_path / "jobs" / "0" / "outcome.json").read_bytes() == before


@pytest.mark.case("68")
@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_main_of_a_sweep_on_another_launcher(
    tmp_path: Path, launcher: str, number: signal.Signals
) -> None:
    search = ("+task.run.way=choice(work)", GRID)
    with sweeps.started(tmp_path, "end_by", *search, *LAUNCHERS[launcher]) as tree:
        _wait_for_training(tree, tmp_path)

        tree.signal(number)

        code = tree.wait(20)
        tree.assert_nothing_left(10)
    assert code == (143 if number == signal.SIGTERM else -9)
    assert number == signal.SIGKILL or Sweep.of(tmp_path).states() == ["FAIL", "WAITING"]


def _wait_for_training(tree: Tree, folder: Path) -> None:
    until(lambda: list(folder.glob("sweeps/x/0/processes/trial-*.step")) or tree.popen.poll() is not None, 90)
    assert tree.popen.poll() is None, tree.text
