"""The results file and the last lines of a sweep."""

import shlex
from pathlib import Path

import pytest
import yaml
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning

from project.common.files.layout import RunLayout
from project.sweeps.shown.results import print_end, write_results
from tests.helpers.studies import add, new_study

ODD = {
    "layers": CategoricalDistribution(["[1, 2]", "[3]"]),
    "text": CategoricalDistribution(['it\'s a "b" $c', "d"]),
    "nothing": CategoricalDistribution([None, 1]),
    "flag": CategoricalDistribution([True, False]),
    "n": IntDistribution(1, 9),
}


class Space:
    """As much of a search space as is asked for: it knows that a text is a list."""

    def typed(self, name: str, stored: object) -> object:
        return [1, 2] if (name, stored) == ("layers", "[1, 2]") else stored


@pytest.fixture
def sweep_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "sweeps" / "s"


@pytest.mark.case("08")
def test_points_that_were_tried_twice_are_told(sweep_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = new_study(sweep_dir)
    for lr, state in ((0.1, "COMPLETE"), (0.2, "COMPLETE"), (0.1, "COMPLETE"), (0.3, "WAITING"), (0.3, "PRUNED")):
        values = [0.5] if state == "COMPLETE" else None
        add(study, sweep_dir, state, values=values, params={"lr": lr, "model": "small"})
    add(study, sweep_dir, "FAIL", params={"lr": 0.2, "model": "small"}, superseded_by=7)

    print_end(study, sweep_dir=sweep_dir)

    assert "  trial 2: tried a point that another one had tried before" in capsys.readouterr().out.splitlines()


def test_names_the_best_trial_and_all_that_belongs_to_it(sweep_dir: Path) -> None:
    study = new_study(sweep_dir)
    add(study, sweep_dir, values=[0.5])
    checkpoint = str(sweep_dir / "1" / "checkpoints" / "best.ckpt")
    add(study, sweep_dir, values=[0.9], end={"checkpoint": checkpoint, "cause": None, "seconds": 2.0, "exit_code": 0})
    layout = RunLayout(sweep_dir / "1")
    layout.wandb_dir.mkdir(parents=True)
    layout.wandb_run_id.write_text("abc123")

    found = yaml.safe_load(write_results(sweep_dir, study).read_text())

    assert found == {
        "name": "optuna",
        "best_params": {"lr": 0.05, "model": "small"},
        "best_value": 0.9,
        "number": 1,
        "folder": str(sweep_dir / "1"),
        "checkpoint": checkpoint,
        "wandb_id": "abc123",
        "overrides": ["+experiment=x", "+search=y", "lr=0.05", "model=small"],
        "command": "python train.py +experiment=x +search=y lr=0.05 model=small",
        "study": "s",
        "counts": {"completed": 2},
        "direction": "maximize",
    }


def test_values_have_their_types(sweep_dir: Path) -> None:
    study = new_study(sweep_dir, directions=["minimize"])
    params = {"layers": "[1, 2]", "text": 'it\'s a "b" $c', "nothing": None, "flag": True, "n": 3}
    add(study, sweep_dir, values=[1e-7], params=params, distributions=ODD)

    found = yaml.safe_load(write_results(sweep_dir, study, Space()).read_text())

    assert found["best_params"] == params | {"layers": [1, 2]}
    assert found["best_value"] == 1e-7
    assert shlex.split(found["command"])[-4:] == ['text=it\'s a "b" $c', "nothing=None", "flag=True", "n=3"]


def test_the_command_leaves_out_what_makes_a_sweep(sweep_dir: Path) -> None:
    study = new_study(sweep_dir)
    number = add(study, sweep_dir, "RUNNING", params={})
    run = {"overrides": ["a=1", "hydra.sweeper.n_trials=9", "hydra/sweeper/sampler=tpe", "hydra.verbose=true"]}
    study._storage.set_trial_user_attr(study.trials[number]._trial_id, "run", run)
    study.tell(number, 1.0)

    found = yaml.safe_load(write_results(sweep_dir, study, command=["python", "my train.py"]).read_text())

    assert found["command"] == "python 'my train.py' a=1 hydra.verbose=true"
    assert found["overrides"] == run["overrides"]


def test_is_written_when_nothing_was_completed(sweep_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = new_study(sweep_dir)
    add(study, sweep_dir, "FAIL", end={"cause": "boom"})

    found = yaml.safe_load(write_results(sweep_dir, study).read_text())
    print_end(study, sweep_dir=sweep_dir)

    assert (found["best_params"], found["best_value"], found["note"]) == ({}, None, "no trial was completed")
    assert capsys.readouterr().out.startswith("s: no trial was completed\ntrials: 1 failed\n")


def test_several_objectives_have_solutions(sweep_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = new_study(sweep_dir, directions=["maximize", "minimize"])
    for values in ([1.0, 5.0], [2.0, 9.0], [0.5, 7.0]):
        add(study, sweep_dir, values=values)
    with pytest.warns(ExperimentalWarning):
        study.set_metric_names(["acc", "size"])

    found = yaml.safe_load(write_results(sweep_dir, study).read_text())
    print_end(study, sweep_dir=sweep_dir)

    assert [(it["number"], it["values"], it["params"]["lr"]) for it in found["solutions"]] == [
        (0, [1.0, 5.0], 0.1),
        (1, [2.0, 9.0], 0.05),
    ]
    assert found["directions"] == ["maximize", "minimize"]
    assert "s: 2 trials on the Pareto front of acc, size\ntrial 0: 1, 5\n" in capsys.readouterr().out


def test_secrets_are_masked(
    sweep_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "not-for-eyes")
    study = new_study(sweep_dir)
    distributions = {
        "db.password": CategoricalDistribution(["hidden-one"]),
        "url": CategoricalDistribution(["not-for-eyes"]),
    }
    add(
        study,
        sweep_dir,
        values=[1.0],
        params={"db.password": "hidden-one", "url": "not-for-eyes"},
        distributions=distributions,
    )
    add(study, sweep_dir, "FAIL", end={"cause": "no login at postgresql://me:hidden-two@host/db"})

    written = write_results(sweep_dir, study).read_text()
    print_end(study, sweep_dir=sweep_dir)

    shown = written + capsys.readouterr().out
    assert "db.password=***" in shown
    assert "postgresql://me:***@host/db" in shown
    for secret in ("not-for-eyes", "hidden-one", "hidden-two"):
        assert secret not in shown


def test_the_last_lines(sweep_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = new_study(sweep_dir)
    add(study, sweep_dir, values=[0.5], end={"checkpoint": str(sweep_dir / "0/checkpoints/best.ckpt")})
    for cause in ("RuntimeError: out\nof memory", "killed by SIGSEGV", "RuntimeError: out\nof memory"):
        add(study, sweep_dir, "FAIL", end={"cause": cause})
    add(study, sweep_dir, "FAIL", end={"cause": "SIGTERM"}, superseded_by=6)
    add(study, sweep_dir, "PRUNED", intermediate={1: 0.2})
    add(study, sweep_dir, "WAITING", continues=4)
    add(study, sweep_dir, "FAIL", not_counted="lr: is refused")

    print_end(study, sweep_dir=sweep_dir)

    assert capsys.readouterr().out == (
        "s: best value 0.5, trial 0\n"
        "  lr     0.1\n"
        "  model  small\n"
        "  checkpoint: sweeps/s/0/checkpoints/best.ckpt\n"
        "  folder: sweeps/s/0\n"
        "  again: python train.py +experiment=x +search=y lr=0.1 model=small\n"
        "trials: 1 completed, 1 pruned, 3 failed, 1 refused, 1 superseded, 1 waiting\n"
        "  trials 1, 3: RuntimeError: out of memory\n"
        "    sweeps/s/{1,3}\n"
        "  trial 2: killed by SIGSEGV\n"
        "    sweeps/s/2\n"
        "  trial 7: lr: is refused\n"
        "    sweeps/s/7\n"
        "sweep folder: sweeps/s\n"
        "report:    python -m project.report sweeps/s\n"
        "dashboard: make dashboard SWEEP=sweeps/s\n"
    )


def test_a_moved_sweep_names_the_folders_where_they_are(sweep_dir: Path, tmp_path: Path) -> None:
    study = new_study(sweep_dir)
    layout = RunLayout(sweep_dir / "0")
    layout.make()
    layout.checkpoint("best").touch()
    add(study, sweep_dir, values=[0.5], end={"checkpoint": str(layout.checkpoint("best"))})
    moved = sweep_dir.rename(tmp_path / "moved")

    found = yaml.safe_load(write_results(moved, study).read_text())

    assert found["folder"] == str(moved / "0")
    assert found["checkpoint"] == str(RunLayout(moved / "0").checkpoint("best"))
