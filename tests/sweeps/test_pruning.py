"""Trials that end early as the pruner wishes: every rank at the same step, with all that was reached."""

import json
from pathlib import Path

import pytest

from tests.helpers import sweep_tasks, sweeps, wandb_runs
from tests.helpers.sweeps import ended, ended_here, tiny_sweep, trivial_sweep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
GROUP = "hydra/sweeper/pruner="
# Each trial is worse than the one before it; each of these sees so at the latest after four values.
PRUNERS = {
    "median": ("hydra.sweeper.pruner.n_startup_trials=1",),
    "percentile": ("hydra.sweeper.pruner.n_startup_trials=1",),
    "successive_halving": ("hydra.sweeper.pruner.min_resource=1", "hydra.sweeper.pruner.reduction_factor=2"),
    "hyperband": ("hydra.sweeper.pruner.max_resource=4", "hydra.sweeper.pruner.reduction_factor=2"),
    "threshold": ("hydra.sweeper.pruner.upper=5",),
    "patient": (
        "hydra.sweeper.pruner.patience=1",
        "hydra.sweeper.pruner.wrapped_pruner.n_startup_trials=1",
        "+task.run.falls=false",
    ),
}
WANDB = ("logger=wandb", "managers.wandb.mode=offline")


@pytest.mark.case("24")
@pytest.mark.parametrize("pruner", PRUNERS)
def test_a_pruner_of_the_configuration_ends_trials_that_are_worse(tmp_path: Path, served: int, pruner: str) -> None:
    space = ("seed=range(1,9)", "+task.run.worse=10", "hydra.sweeper.n_trials=5", "hydra.sweeper.n_jobs=2")
    code, text = ended_here(trivial_sweep(tmp_path, *space, GROUP + pruner, *PRUNERS[pruner]), tmp_path)
    trials, folders = sweeps.trials(tmp_path), sweeps.trial_folders(tmp_path)
    pruned = [trial for trial in trials if trial.state.name == "PRUNED"]

    assert code == 0, text
    assert pruned, text
    assert sweeps.counts(tmp_path).counted == 5
    assert "failed" not in text
    for trial in pruned:
        n = len(trial.intermediate_values)
        assert trial.intermediate_values == {
            step: 10 * trial.number + (step if pruner == "patient" else 1 / step) for step in range(1, n + 1)
        }
        assert sweeps.is_whole(folders[trial.number], status="pruned")
        assert json.loads(folders[trial.number].metrics.read_text()) == {"loss": trial.intermediate_values[n]}
        assert trial.user_attrs["end"]["cause"] == f"pruned at step {n}, after {n} values"


@pytest.mark.case("24", "69")
@pytest.mark.parametrize("n_ranks", [1, 2])
def test_a_pruned_training_ends_at_the_same_step_on_all_ranks(tmp_path: Path, n_ranks: int) -> None:
    pruner = (GROUP + "threshold", "hydra.sweeper.pruner.lower=2", "hydra.sweeper.pruner.n_warmup_steps=2")
    space = (
        "seed=choice(3,4)",
        "hydra.sweeper.n_trials=2",
        f"trainer.devices={n_ranks}",
        "trainer.val_check_interval=0.5",
    )
    code, text = ended(tiny_sweep(tmp_path, *space, *pruner, *WANDB), tmp_path)
    folders = sweeps.trial_folders(tmp_path)

    assert code == 0, text
    assert sweeps.states(tmp_path) == {"PRUNED": 2}
    for trial in sweeps.trials(tmp_path):
        layout = folders[trial.number]
        assert sorted(trial.intermediate_values) == [1, 2]
        assert sweeps.is_whole(layout, status="pruned")
        assert json.loads(layout.metrics.read_text())["val/acc"] == trial.intermediate_values[2]
        steps = {it["label"]: it["step"] for it in json.loads(layout.outcome.read_text())["processes"] if it["step"]}
        assert len(steps) == n_ranks, steps
        assert len(set(steps.values())) == 1, steps
        assert wandb_runs.exit_codes(layout.run_dir) == [0]
        assert wandb_runs.summary(layout.run_dir)["state"] == "pruned"


@pytest.mark.case("24")
@pytest.mark.parametrize(("n_ranks", "rank"), [(1, 0), (2, 0), (2, 1)])
def test_the_exception_of_optuna_in_one_rank_prunes_the_trial(tmp_path: Path, n_ranks: int, rank: int) -> None:
    node = f"{{_target_:{sweep_tasks.__name__}.PruneInRank,rank:{rank},step:6}}"
    space = (
        "seed=choice(3)",
        "hydra.sweeper.n_trials=1",
        f"trainer.devices={n_ranks}",
        "trainer.val_check_interval=0.5",
    )
    code, text = ended(tiny_sweep(tmp_path, *space, f"+callbacks.prune={node}", *WANDB), tmp_path)
    (layout,), (trial,) = sweeps.trial_folders(tmp_path).values(), sweeps.trials(tmp_path)

    assert code == 0, text
    assert (trial.state.name, list(trial.intermediate_values)) == ("PRUNED", [1] if n_ranks == 1 else [1, 2])
    assert "it will not get better" in trial.user_attrs["end"]["cause"]
    assert sweeps.is_whole(layout, status="pruned")
    assert json.loads(layout.metrics.read_text())["val/acc"] == trial.intermediate_values[n_ranks]
    assert wandb_runs.exit_codes(layout.run_dir) == [0]
    assert wandb_runs.summary(layout.run_dir)["state"] == "pruned"
