"""`python -m project.ps` on a sweep: its trials by number while they live, and nothing once its main was killed."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from project.common.process_registry import living
from tests.helpers import sweep_runs as sweeps
from tests.helpers.sweep_runs import GRID, Sweep
from tests.helpers.tree import ROOT
from tests.helpers.waiting import until

pytestmark = pytest.mark.slow


def ps(*arguments: str) -> str:
    """What it prints."""
    command = [sys.executable, "-m", "project.ps", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_shows_the_trials_of_a_live_sweep_and_reaps_those_of_a_killed_one(start_method: str, tmp_path: Path) -> None:
    search = (GRID, "+task.run.way=choice(work)", "seed=choice(1,2)", "hydra.sweeper.n_jobs=2")
    with sweeps.started(tmp_path, "end_by", *search, f"processes.start_method={start_method}") as tree:
        folder = Sweep.of(tmp_path).folder
        both = [folder / "0", folder / "1"]
        until(lambda: all(list(one.glob("processes/trial-*.step")) for one in both), 100, what=tree.text)

        shown = {Path(one["run_dir"]): one["processes"] for one in json.loads(ps("--json"))}
        tree.signal(signal.SIGKILL)
        tree.wait(20)
        ps("--reap")

        assert not [record for one in both for record in living(one)]
        tree.assert_nothing_left()
    assert list(shown) == [folder, *both]
    roles = [one["identity"]["role"] for one in shown[folder]]
    assert sorted(roles) == (["main", "server"] if start_method == "forkserver" else ["main"])
    assert [shown[one][0]["identity"]["trial"] for one in both] == [0, 1]
    assert ps("--json") == "[]\n"
