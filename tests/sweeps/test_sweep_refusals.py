"""What a sweep was told wrongly is one clear error, and nothing is spoilt by it."""

from pathlib import Path

import pytest

from tests.helpers import sweeps
from tests.helpers.sweeps import ended, ended_here, tiny_sweep, trivial_sweep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SEEDS = ("seed=range(1,9)", "hydra.sweeper.n_trials=2")
# What is typed, and the text that names it.
BEFORE = {
    "task.model.widht=choice(1,2)": "Could not override 'task.model.widht'",
    "managers/amp=choice(bf16,bf17)": "Could not find 'managers/amp/bf17'",
    "hydra.sweeper.n_trials=x": "hydra.sweeper.n_trials: 'x' will not do",
    "hydra.sweeper.n_trails=3": "Could not override 'hydra.sweeper.n_trails'",
    "hydra.sweeper.skip_repeated=3": "hydra.sweeper.skip_repeated: 3 will not do; use true or false",
    "hydra/sweeper/sampler=nope": "Could not find 'hydra/sweeper/sampler/nope'",
    "hydra/sweeper/sampler=motpe": "The 'motpe' sampler was removed in Optuna 4.0",
    "hydra.sweeper.direction=up": "hydra.sweeper.direction: 'up' is unknown; use maximize, max, minimize, min",
    "hydra.sweeper.metrics=[loss,other]": "hydra.sweeper.direction: 1 for 2 metrics (loss, other)",
}


@pytest.mark.parametrize("wrong", BEFORE)
def test_what_cannot_be_is_refused_before_there_is_a_study(tmp_path: Path, served: int, wrong: str) -> None:
    code, text = ended_here(trivial_sweep(tmp_path, *SEEDS, wrong), tmp_path)

    assert code == 2, text
    assert BEFORE[wrong] in text
    assert "Traceback" not in text
    assert not (tmp_path / "sweeps").exists()


@pytest.mark.case("25")
@pytest.mark.parametrize(
    ("wrong", "right", "key"),
    [
        (["objective.metric=los"], ["objective.metric=loss"], "objective.metric: 'los'"),
        (
            ["hydra.sweeper.metrics=[loss,oter]", "hydra.sweeper.direction=[min,max]"],
            ["hydra.sweeper.metrics=[loss,other]", "hydra.sweeper.direction=[min,max]"],
            "hydra.sweeper.metrics: 'oter'",
        ),
    ],
)
def test_a_misspelt_metric_ends_the_sweep_at_its_first_trial_and_can_be_corrected(
    tmp_path: Path, served: int, wrong: list[str], right: list[str], key: str
) -> None:
    """It cost a trial of `n_trials`, and the corrected command was refused as another search."""
    code, text = ended_here(trivial_sweep(tmp_path, *SEEDS, "hydra.sweeper.n_jobs=2", *wrong), tmp_path)
    left = sweeps.trial_folders(tmp_path)
    code_again, text_again = ended_here(trivial_sweep(tmp_path, *SEEDS, *right), tmp_path)

    assert code == 2, text
    assert text.splitlines()[-1] == f"{key} is not logged; use one of loss, other"
    assert text.count("is not logged") == 1
    assert left == {}
    assert code_again == 0, text_again
    counts = sweeps.counts(tmp_path)
    assert (counts.complete, counts.counted) == (2, 2)


@pytest.mark.case("25")
def test_a_misspelt_metric_of_a_training_is_found_before_it_trains(tmp_path: Path) -> None:
    more = ("hydra.sweeper.metrics=[val/acc,val/typo]", "hydra.sweeper.direction=[max,max]")
    code, text = ended(tiny_sweep(tmp_path, *SEEDS, *more), tmp_path, environ={"PACE_S": "60"})

    assert code == 2, text
    assert text.splitlines()[-1].startswith("hydra.sweeper.metrics: 'val/typo' is not logged; use one of test/acc, ")
    assert sweeps.trial_folders(tmp_path) == {}


def test_another_search_is_refused_and_what_changes_no_result_may_change(tmp_path: Path, served: int) -> None:
    first = ended_here(trivial_sweep(tmp_path, *SEEDS, "task.run.steps=choice(1,2)"), tmp_path)
    other = ("seed=range(1,20)", "hydra.sweeper.n_trials=2", "task.run.steps=3", "trainer.max_epochs=9")
    code, text = ended_here(trivial_sweep(tmp_path, *other), tmp_path)
    same = ("loader.num_workers=1", "paths.runs_dir=elsewhere", "logger=csv", "managers.wandb.project=other")
    same = (*same, "processes.deadline_s=20", "hydra.sweeper.n_trials=3", "hydra.sweeper.max_retries=1")
    command = trivial_sweep(tmp_path, *SEEDS, "task.run.steps=choice(1,2)", *same)
    code_of_same, text_of_same = ended_here(command, tmp_path)

    assert first[0] == 0, first[1]
    assert code == 2, text
    assert "seed: int(interval(1, 8)) → int(interval(1, 19))" in text
    assert "task.run.steps: choice(1, 2) → no longer searched" in text
    assert "trainer.max_epochs: not given → trainer.max_epochs=9" in text
    assert "begins" not in text
    assert code_of_same == 0, text_of_same
    assert "2 of 3 trials are done, 1 to go" in text_of_same


@pytest.mark.case("25")
def test_a_value_that_is_none_fails_its_trial_alone(tmp_path: Path, served: int) -> None:
    values = "task.run.returns=choice(nan,inf,-inf,null,abc,true,'0.5',[1])"
    grid = ("hydra/sweeper/sampler=grid", "hydra.sweeper.n_trials=99", "hydra.sweeper.n_jobs=2")
    code, text = ended_here(trivial_sweep(tmp_path, *grid, values), tmp_path)
    causes = {str(t.params["+task.run.returns"]): t.user_attrs["end"]["cause"] for t in sweeps.trials(tmp_path)}

    assert code == 1, text
    assert causes == {
        "nan": "loss is nan, which is no value to optimise",
        "inf": "loss is inf, which is no value to optimise",
        "-inf": "loss is -inf, which is no value to optimise",
        "abc": "task.run: loss is 'abc' (str), which is no number",
        "0.5": "task.run: loss is '0.5' (str), which is no number",
        "[1]": "task.run: loss is [1] (list), which is no number",
        "True": None,  # a number to Python
        "None": None,  # `sweep_tasks.run` returns its own loss
    }
    assert sweeps.states(tmp_path) == {"COMPLETE": 2, "FAIL": 6}
    assert "Traceback" not in text
