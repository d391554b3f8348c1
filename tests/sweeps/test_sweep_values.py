"""What is searched arrives in the trial as it was typed, and what is told is true of what is kept."""

import json
import shlex
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml

from tests.helpers import sweep_tasks, sweeps
from tests.helpers.runs import run_folder, started
from tests.helpers.sweeps import ended, ended_here, tiny_sweep, trivial_sweep
from tests.helpers.training import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STRINGS = (
    *("a,b", "k=v", "f(x)", "{a}", "it's", "#1", "a&b", "é", "[1]", "1", "true", "null", "a b", "a:b", "a/b", ""),
    *('say "x"', "back\\slash", "$HOME", "%s", "a\tb", "~x", "+y", "*", "???!"),
)
OTHERS = ([1, 2], [3], [], ["a,b", None], {"a": 1}, None, True, 7, 0.5)
GRID = ("hydra/sweeper/sampler=grid", "hydra.sweeper.n_trials=99", "hydra.sweeper.n_jobs=2")


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'") if text.endswith("\\") else text.replace("'", "\\'")
    return f"'{escaped}'"


def seen(folder: Path) -> dict[int, Any]:
    """What each trial was given, by number."""
    layouts = sweeps.trial_folders(folder)
    return {number: json.loads((layout.run_dir / "seen.json").read_text()) for number, layout in layouts.items()}


def paste_back(folder: Path) -> tuple[int, str, Path]:
    """Runs the command of the result file; returns its exit code, output and folder."""
    result = yaml.safe_load((sweeps.sweep_dir(folder) / "optimization_results.yaml").read_text())
    words = shlex.split(result["command"])
    assert words[:2] == ["python", "train.py"]
    assert words[2:] == result["overrides"]
    with started(["python", str(ROOT / "train.py"), *words[2:]], folder) as tree:
        code = tree.wait(90)
        tree.assert_nothing_left()
        return code, tree.text, run_folder(folder).run_dir


@pytest.mark.case("23", "66")
def test_strings_and_structures_arrive_as_they_were_typed(tmp_path: Path, served: int) -> None:
    others = ("[1,2]", "[3]", "[]", "['a,b',null]", "{a:1}", "null", "true", "7", "0.5")
    choices = ",".join((*map(quoted, STRINGS), *others))
    command = trivial_sweep(tmp_path, *GRID, "task.run.steps=1", f"task.run.given=choice({choices})")
    code, text = ended_here(command, tmp_path)
    arrived = list(seen(tmp_path).values())

    assert code == 0, text
    assert sorted(map(repr, arrived)) == sorted(map(repr, (*STRINGS, *OTHERS)))
    for trial in sweeps.trials(tmp_path):
        assert trial.state.name == "COMPLETE"


@pytest.mark.case("64", "66")
@pytest.mark.parametrize("given", ["null", "'k=v, {a}'", "{a:[true,null]}"])
def test_the_command_of_the_result_reproduces_the_trial(tmp_path: Path, served: int, given: str) -> None:
    given = given.replace("''", "\\'")
    space = (f"task.run.given=choice({given})", "managers/amp=choice(bf16)", "hydra.sweeper.n_trials=1")
    code, text = ended_here(trivial_sweep(tmp_path, *space), tmp_path)
    again, text_again, folder = paste_back(tmp_path)
    (layout,) = sweeps.trial_folders(tmp_path).values()

    assert code == 0, text
    assert again == 0, text_again
    assert (folder / "seen.json").read_text() == (layout.run_dir / "seen.json").read_text()
    assert (folder / "metrics.json").read_text() == layout.metrics.read_text()
    one, other = (yaml.safe_load((path / "config.yaml").read_text()) for path in (folder, layout.run_dir))
    assert one["managers"]["amp"] == other["managers"]["amp"]


@pytest.mark.case("66")
def test_a_choice_of_groups_chooses_them(tmp_path: Path, served: int) -> None:
    code, text = ended_here(trivial_sweep(tmp_path, *GRID, "managers/amp=choice(bf16,fp32)"), tmp_path)
    configs = [yaml.safe_load(layout.config.read_text()) for layout in sweeps.trial_folders(tmp_path).values()]

    assert code == 0, text
    assert sorted(config["managers"]["amp"]["dtype"] for config in configs) == ["bfloat16", "float32"]


@pytest.mark.case("64")
def test_the_value_is_that_of_the_checkpoint_that_is_kept(tmp_path: Path) -> None:
    spoil = f"+callbacks.spoil._target_={sweep_tasks.__name__}.Spoil"
    objective = ("task.objective.metric=val/loss", "task.objective.mode=min")
    command = tiny_sweep(tmp_path, "seed=choice(3)", "hydra.sweeper.n_trials=1", spoil, *objective)
    code, text = ended(command, tmp_path)
    ((layout,), (trial,)) = sweeps.trial_folders(tmp_path).values(), sweeps.trials(tmp_path)
    losses = [line["val/loss"] for line in sweeps.history(layout) if "val/loss" in line]
    result = yaml.safe_load((sweeps.sweep_dir(tmp_path) / "optimization_results.yaml").read_text())
    evaluation = ["python", str(ROOT / "eval.py"), f"ckpt={result['checkpoint']}", "split=val"]
    with started(evaluation, tmp_path) as tree:
        assert tree.wait(90) == 0, tree.text

    assert code == 0, text
    assert losses[0] < min(losses[1:])
    assert trial.value == result["best_value"] == losses[0]
    assert result["checkpoint"] == str(layout.checkpoint("best"))
    assert (result["number"], result["folder"]) == (0, str(layout.run_dir))
    assert f"{trial.value:.4f}" in tree.text


def test_several_objectives_are_told_together(tmp_path: Path, served: int) -> None:
    goals = ("hydra.sweeper.metrics=[loss,other]", "hydra.sweeper.direction=[minimize,maximize]")
    more = ("task.run.steps=choice(1,2)", "hydra/sweeper/sampler=nsgaii", "hydra.sweeper.n_trials=4")
    code, text = ended_here(trivial_sweep(tmp_path, *goals, *more), tmp_path)
    result = yaml.safe_load((sweeps.sweep_dir(tmp_path) / "optimization_results.yaml").read_text())

    assert code == 0, text
    assert all(trial.values[1] == 2 * trial.values[0] for trial in sweeps.trials(tmp_path))
    assert {"solutions"} <= result.keys()


def suggest_more(cfg: Any, trial: optuna.Trial) -> None:
    """`worse` is searched only where there is more than one step."""
    if trial.params["task.run.steps"] > 1:
        trial.suggest_categorical("+task.run.worse", [1.0, 2.0])


def test_a_condition_adds_a_parameter_to_some_trials(tmp_path: Path) -> None:
    space = ("task.run.steps=choice(1,2)", f"hydra.sweeper.custom_search_space={__name__}.suggest_more")
    more = ("hydra.sweeper.n_trials=6", "hydra/sweeper/sampler=random")
    code, text = ended(trivial_sweep(tmp_path, *space, *more), tmp_path, environ={"PROJECT_ALLOW": "tests.*"})
    folders = sweeps.trial_folders(tmp_path)
    runs = {number: yaml.safe_load(layout.config.read_text())["task"]["run"] for number, layout in folders.items()}

    assert code == 0, text
    assert {run["steps"] for run in runs.values()} == {1, 2}
    assert all(("worse" in run) == (run["steps"] > 1) for run in runs.values())


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid", "cmaes", "nsgaii", "nsgaiii", "qmc", "gp"])
def test_every_sampler_of_the_plugin_runs_a_sweep(tmp_path: Path, served: int, sampler: str) -> None:
    space = ("task.run.steps=range(1,4)", "task.run.step_s=interval(0,0.01)", "hydra.sweeper.n_trials=3")
    if sampler == "grid":
        space = ("task.run.steps=choice(1,2,3)", "hydra.sweeper.n_trials=3")
    code, text = ended_here(trivial_sweep(tmp_path, *space, f"hydra/sweeper/sampler={sampler}"), tmp_path)

    assert code == 0, text
    assert sweeps.states(tmp_path) == {"COMPLETE": 3}
    assert "Warning" not in text


@pytest.mark.case("08")
def test_a_point_that_has_a_value_is_not_run_again_if_so_wished(tmp_path: Path, served: int) -> None:
    space = ("task.run.steps=choice(1,2)", "hydra.sweeper.metrics=loss", "hydra/sweeper/sampler=random")
    more = ("hydra.sweeper.n_trials=8", "hydra.sweeper.skip_repeated=true")
    code, text = ended_here(trivial_sweep(tmp_path, *space, *more), tmp_path)
    trials, counts = sweeps.trials(tmp_path), sweeps.counts(tmp_path)
    ran = {trial.number: trial for trial in trials if "repeats" not in trial.user_attrs["run"]}
    result = yaml.safe_load((sweeps.sweep_dir(tmp_path) / "optimization_results.yaml").read_text())

    assert code == 0, text
    assert (counts.complete, counts.counted) == (8, 8)
    assert len(ran) == len({str(trial.params) for trial in ran.values()}) == len({str(it.params) for it in trials})
    assert set(sweeps.trial_folders(tmp_path)) == set(ran), "what is not run has no folder"
    for trial in trials:
        original = ran[trial.user_attrs["run"].get("repeats", trial.number)]
        assert (trial.params, trial.values) == (original.params, original.values)
        assert trial.user_attrs["run"]["folder"] == original.user_attrs["run"]["folder"]
    others = ", ".join(str(trial.number) for trial in trials if trial.number not in ran)
    assert f"trials {others}: not run; took over the value of an equal point" in text
    assert "that another one had tried before" not in text
    assert Path(result["folder"]).is_dir()
