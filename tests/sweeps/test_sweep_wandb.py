"""W&B in a sweep: one run per trial, ended as the trial ended."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from project.common.files.layout import RunLayout
from tests.helpers import sweeps, wandb_runs
from tests.helpers.runs import started
from tests.helpers.sweep_tasks import SLOW
from tests.helpers.sweeps import ended, trivial_sweep, wait_for_trials

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
OFFLINE = ("logger=wandb", "managers.wandb.mode=offline")


def run_record(layout: RunLayout) -> Any:
    """How the one run in a trial's folder began."""
    (records,) = wandb_runs.stored(layout.run_dir)
    return next(record.run for record in records if record.WhichOneof("record_type") == "run")


@pytest.mark.case("09", "69")
def test_each_trial_has_a_run_of_its_own_also_after_one_that_failed(tmp_path: Path) -> None:
    command = trivial_sweep(tmp_path, *OFFLINE, "seed=range(1,100000)", "hydra.sweeper.n_trials=3", "name=grouped")
    code, text = ended(command, tmp_path, environ={"PROBE": "trial=1,step=2,do=raise"})
    folders = sweeps.trial_folders(tmp_path)
    runs = {number: run_record(layout) for number, layout in folders.items()}

    assert code == 1, text
    assert {number: wandb_runs.exit_codes(layout.run_dir) for number, layout in folders.items()} == {
        0: [0],
        1: [1],
        2: [0],
    }
    assert len({run.run_id for run in runs.values()}) == 3
    assert {run.run_group for run in runs.values()} == {"grouped"}
    for trial in sweeps.trials(tmp_path):
        config = {item.key: json.loads(item.value_json) for item in runs[trial.number].config.update}
        assert config["seed"] == trial.params["seed"]
        assert config["sweep"] == {"study": "grouped", "trial": trial.number, "params": trial.params}


@pytest.mark.case("69")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_trial_ends_its_run_with_the_code_of_the_signal(tmp_path: Path, number: signal.Signals) -> None:
    command = trivial_sweep(tmp_path, *OFFLINE, "seed=range(1,9)", "task.run.steps=500", "hydra.sweeper.n_trials=1")
    with started(command, tmp_path, environ={SLOW: "0"}) as tree:
        wait_for_trials(tree, tmp_path, 0, step=2)
        tree.signal_group(number)
        tree.wait(15)
        tree.assert_nothing_left(1)
    (layout,) = sweeps.trial_folders(tmp_path).values()

    assert wandb_runs.exit_codes(layout.run_dir) == [128 + number]


@pytest.mark.case("69")
def test_the_run_of_a_killed_trial_is_told_at_the_next_start(tmp_path: Path) -> None:
    command = trivial_sweep(tmp_path, *OFFLINE, "seed=range(1,9)", "task.run.steps=50", "hydra.sweeper.n_trials=1")
    with started(command, tmp_path, environ={SLOW: "0"}) as tree:
        wait_for_trials(tree, tmp_path, 0, step=2)
        tree.signal(signal.SIGKILL)
        tree.assert_nothing_left(8)
    (old,) = sweeps.trial_folders(tmp_path).values()
    code, text = ended(command, tmp_path)

    assert code == 0, text
    assert f"W&B run {old.wandb_run_id.read_text()} in {old.run_dir} was not closed" in text
    assert wandb_runs.exit_codes(sweeps.trial_folders(tmp_path)[1].run_dir) == [0]
