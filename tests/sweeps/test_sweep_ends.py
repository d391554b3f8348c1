"""A sweep that is interrupted loses nothing: no trial runs in the study any more, and the same command goes on."""

import json
import signal
from pathlib import Path

import pytest

from project.common.files.checkpoint_file import load_checkpoint_file
from tests.helpers import sweeps
from tests.helpers.runs import started
from tests.helpers.sweep_tasks import SLOW
from tests.helpers.sweeps import ended, tiny_sweep, trivial_sweep, wait_for_trials
from tests.helpers.training import equal
from tests.helpers.tree import Tree

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SIGNALS = [(signal.SIGINT, 1, "forkserver"), (signal.SIGTERM, 2, "forkserver"), (signal.SIGHUP, 2, "spawn")]


def assert_in_order(tree: Tree, number: signal.Signals) -> None:
    code = tree.wait(12)
    tree.assert_nothing_left(1)

    assert code == 128 + number, tree.text
    assert tree.text.splitlines()[-1] == f"{number.name}: the same command goes on"
    assert "Traceback" not in tree.text


@pytest.mark.case("06", "07")
@pytest.mark.parametrize(("number", "n_jobs", "method"), SIGNALS)
def test_a_signal_puts_the_running_trials_back_and_the_same_command_ends_at_n_trials(
    tmp_path: Path, number: signal.Signals, n_jobs: int, method: str
) -> None:
    space = ("seed=range(1,9)", "task.run.steps=200", "hydra.sweeper.n_trials=4")
    command = trivial_sweep(tmp_path, *space, f"hydra.sweeper.n_jobs={n_jobs}", f"processes.start_method={method}")
    with started(command, tmp_path, environ={SLOW: "1"}) as tree:
        wait_for_trials(tree, tmp_path, *range(1, 1 + n_jobs), step=2)
        tree.signal_group(number)
        assert_in_order(tree, number)
    left, counts = sweeps.trials(tmp_path), sweeps.counts(tmp_path)
    before = {each: sweeps.checksums(layout.run_dir) for each, layout in sweeps.trial_folders(tmp_path).items()}
    code, text = ended(command, tmp_path)
    after = sweeps.trial_folders(tmp_path)

    assert (counts.complete, counts.superseded, counts.waiting, counts.counted) == (1, n_jobs, n_jobs, 1)
    assert [trial.state.name for trial in left[: 1 + n_jobs]] == ["COMPLETE", *["FAIL"] * n_jobs]
    for old in left[1 : 1 + n_jobs]:
        clone = left[old.user_attrs["superseded_by"]]
        assert (clone.state.name, clone.params) == ("WAITING", old.params)
        assert json.loads(after[old.number].outcome.read_text())["status"] == "interrupted"
    assert code == 0, text
    assert "1 of 4 trials are done, 3 to go" in text
    assert sweeps.counts(tmp_path).complete == 4
    assert set(after) == set(range(4 + n_jobs))
    assert {each: sweeps.checksums(after[each].run_dir) for each in before} == before
    assert all(sweeps.is_whole(after[trial.number]) for trial in sweeps.trials(tmp_path) if trial.values)


@pytest.mark.case("06", "20")
@pytest.mark.parametrize("n_ranks", [1, 2])
def test_the_clone_of_an_interrupted_training_goes_on_exactly(tmp_path: Path, n_ranks: int) -> None:
    """Weights, optimizer, history and result are those of a trial that nobody interrupted; W&B's run is the same."""
    settings = ("seed=choice(3)", "hydra.sweeper.n_trials=1", f"trainer.devices={n_ranks}", "logger=wandb")
    settings = (*settings, "managers.wandb.mode=offline", "trainer.val_check_interval=0.5")
    folders = {name: tmp_path / name for name in ("whole", "cut")}
    for folder in folders.values():
        folder.mkdir()
    whole_code, whole_text = ended(tiny_sweep(folders["whole"], *settings), folders["whole"])
    command = tiny_sweep(folders["cut"], *settings)
    with started(command, folders["cut"], environ={"PACE_S": "0.3"}) as tree:
        wait_for_trials(tree, folders["cut"], 0, step=2)
        tree.signal_group(signal.SIGINT)
        assert_in_order(tree, signal.SIGINT)
    code, text = ended(command, folders["cut"])
    (whole,) = sweeps.trial_folders(folders["whole"]).values()
    old, new = (sweeps.trial_folders(folders["cut"])[number] for number in (0, 1))

    assert (whole_code, code) == (0, 0), whole_text + text
    assert sweeps.history(new) == sweeps.history(whole)
    assert 0 < len(sweeps.history(old)) < len(sweeps.history(new))
    one, other = load_checkpoint_file(new.checkpoint("last")), load_checkpoint_file(whole.checkpoint("last"))
    for key in ("state_dict", "optimizer_states", "lr_schedulers", "epoch", "global_step"):
        assert equal(one[key], other[key]), key
    assert json.loads(new.metrics.read_text()) == json.loads(whole.metrics.read_text())
    assert new.wandb_run_id.read_text() == old.wandb_run_id.read_text() != whole.wandb_run_id.read_text()
    assert sweeps.trials(folders["cut"])[1].values == sweeps.trials(folders["whole"])[0].values


@pytest.mark.case("20")
def test_four_trials_of_two_ranks_at_once_meet_only_their_own(tmp_path: Path) -> None:
    """A rendezvous address that all jobs of a shell inherit made ranks of different jobs meet, or wait for ever."""
    space = ("seed=choice(1,2,3,4)", "hydra/sweeper/sampler=grid", "hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=4")
    inherited = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "PACE_S": "0.5"}
    with started(tiny_sweep(tmp_path, *space, "trainer.devices=2"), tmp_path, environ=inherited) as tree:
        wait_for_trials(tree, tmp_path, 0, 1, 2, 3)  # every rank of all four trains: none waits for another trial
        code = tree.wait(200)
        tree.assert_nothing_left()
    folders, trials = sweeps.trial_folders(tmp_path), sweeps.trials(tmp_path)

    assert code == 0, tree.text
    assert sweeps.states(tmp_path) == {"COMPLETE": 4}
    assert max(trial.datetime_start for trial in trials) < min(trial.datetime_complete for trial in trials)
    assert set(folders) == {0, 1, 2, 3}
    for layout in folders.values():
        labels = {process["label"] for process in json.loads(layout.outcome.read_text())["processes"]}
        assert {"rank0", "rank1"} <= labels
        assert sweeps.is_whole(layout)
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "outputs").exists()
