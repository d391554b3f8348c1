"""Sweeps whose processes are killed at random moments end at exactly `n_trials`, and nothing is lost or overwritten."""

import os
import random
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from project.common.process_registry import read_run
from tests.helpers import sweeps
from tests.helpers.postgres import Server
from tests.helpers.runs import started
from tests.helpers.sweep_tasks import SLOW
from tests.helpers.sweeps import ended, tiny_sweep, trivial_sweep, wait_for_trials
from tests.helpers.tree import Tree, is_alive, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ALLOW = {"PROJECT_ALLOW": "tests.helpers.*"}
VICTIMS = {"trivial": ("trial", "server", "main"), "ddp": ("worker", "trial", "server", "rank", "main")}  # in turn


def victim(kind: str, tree: Tree, folder: Path) -> int | None:
    """Pid of a process of this kind; None when there is none just now."""
    if kind == "main":
        return tree.pid
    if kind == "server":
        return next((process.pid for process in tree.titled("project: server")), None)
    folders = (folder / "sweeps").glob("*/[0-9]*")
    found = [record for path in folders for record in read_run(path) if record.key.is_alive()]
    return next((record.key.pid for record in found if record.identity.role == kind), None)


def killed_at_random(kind: str, tree: Tree, folder: Path, chance: random.Random) -> str:
    """Kills one process of a kind at some moment; returns the kind, or nothing when the sweep ended before."""
    moment = time.monotonic() + chance.uniform(0.5, 8)
    while time.monotonic() < moment + 30 and tree.popen.poll() is None:
        pid = victim(kind, tree, folder) if time.monotonic() >= moment else None
        if pid is not None and is_alive(psutil.Process(pid)):
            os.kill(pid, signal.SIGKILL)
            return kind
        time.sleep(0.02)
    return ""


def complete_folders(folder: Path) -> dict[int, dict[str, str]]:
    """Checksums of the folders of completed trials."""
    numbers = [trial.number for trial in sweeps.trials(folder) if trial.state.name == "COMPLETE"]
    return {number: sweeps.checksums(sweeps.trial_folders(folder)[number].run_dir) for number in numbers}


TRIVIAL = ("seed=range(1,9)", "task.run.steps=8", "hydra.sweeper.n_trials=10", "hydra.sweeper.n_jobs=2")
DDP = ("seed=range(1,9)", "hydra.sweeper.n_trials=6", "trainer.devices=2", "loader.num_workers=1")


@pytest.mark.case("06", "07", "20")
@pytest.mark.parametrize("kind", ["trivial", "ddp"])
def test_a_sweep_that_is_killed_again_and_again_is_resumed_until_it_is_done(tmp_path: Path, kind: str) -> None:
    chance = random.Random(f"storm {kind}")
    command = trivial_sweep(tmp_path, *TRIVIAL) if kind == "trivial" else tiny_sweep(tmp_path, *DDP)
    n_trials, pace = (10, {SLOW: "0"}) if kind == "trivial" else (6, {"PACE_S": "0.3"})
    done: dict[int, dict[str, str]] = {}
    told, kills = "", []
    for _ in range(3):
        with started(command, tmp_path, environ=pace) as tree:
            while tree.popen.poll() is None and (not kills or kills[-1] != "main"):
                next_kind = VICTIMS[kind][sum(map(bool, kills)) % len(VICTIMS[kind])]
                kills.append(killed_at_random(next_kind, tree, tmp_path, chance))
            tree.wait(60)
            tree.assert_nothing_left(8)
            told += tree.text
        kills.append("")
        if (tmp_path / "sweeps").exists():
            now = complete_folders(tmp_path)
            assert {number: now[number] for number in done} == done, kills
            done = now
    code, text = ended(command, tmp_path, limit_s=200)
    counts = sweeps.counts(tmp_path)

    assert set(VICTIMS[kind]) <= set(kills), kills
    assert code == int(counts.failed > 0), text
    assert (counts.counted, counts.running, counts.waiting) == (n_trials, 0, 0), (kills, told + text)
    assert "Traceback" not in told + text
    now = complete_folders(tmp_path)
    assert {number: now[number] for number in done} == done
    folders = sweeps.trial_folders(tmp_path)
    assert all(sweeps.is_whole(folders[number]) for number in now)
    assert all(trial.user_attrs["end"]["cause"] for trial in sweeps.trials(tmp_path) if trial.state.name == "FAIL")
    with FileLock(sweeps.sweep_dir(tmp_path) / "study.db.section").acquire(timeout=0):
        pass


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest) -> list[str]:
    """What chooses the storage."""
    if request.param == "sqlite":
        return []
    server: Server = request.getfixturevalue("postgres")
    return [f"hydra.sweeper.storage='{server.url()}'"]


@pytest.mark.case("07", "08")
def test_three_shells_on_a_fresh_storage_count_exactly_n_trials(tmp_path: Path, storage: list[str]) -> None:
    space = ("seed=range(1,1000000)", "task.run.steps=1", "hydra.sweeper.n_trials=10")
    command = trivial_sweep(tmp_path, *space, *storage)
    with ExitStack() as stack:
        trees = [
            stack.enter_context(running(command, output=tmp_path / f"output{n}", environ=ALLOW, cwd=tmp_path))
            for n in range(3)
        ]
        codes = [tree.wait(120) for tree in trees]
        trees[0].assert_nothing_left()
    told = "\n".join(tree.text for tree in trees)
    found = sweeps.trials(tmp_path)

    assert codes == [0, 0, 0], told
    assert "Traceback" not in told
    assert sweeps.counts(tmp_path).counted == len(found) == 10
    assert set(sweeps.trial_folders(tmp_path)) == set(range(10))
    assert len({trial.params["seed"] for trial in found}) == 10, "a point was tried twice"
    owners = {trial.user_attrs["run"]["owner"]["pid"] for trial in found}
    assert len(owners) > 1, "one shell did it all: nothing was shared"


@pytest.mark.case("06", "07")
def test_a_shell_with_nothing_to_start_waits_and_takes_up_what_a_killed_one_leaves(tmp_path: Path) -> None:
    command = trivial_sweep(tmp_path, "seed=range(1,9)", "task.run.steps=500", "hydra.sweeper.n_trials=1")
    with started(command, tmp_path, environ={SLOW: "0"}) as first:
        wait_for_trials(first, tmp_path, 0)
        with running(command, output=tmp_path / "output2", environ=ALLOW, cwd=tmp_path) as second:
            second.wait_until_written("1 trials run in other shells; this one waits")
            assert second.popen.poll() is None
            first.signal(signal.SIGKILL)
            code = second.wait(60)
            first.assert_nothing_left()
    counts = sweeps.counts(tmp_path)

    assert code == 0, second.text
    assert "which is gone, waits again as trial 1" in second.text
    assert (counts.complete, counts.counted, counts.superseded) == (1, 1, 1)
