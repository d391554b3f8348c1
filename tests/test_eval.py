"""What is done with a run besides training it: evaluating its checkpoint, debugging it, and the baselines."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from project.training.launch import run
from tests.helpers.runs import BREAKPOINT, run_folder, started, tiny
from tests.helpers.training import ROOT, compose, tiny_config

EVAL = str(ROOT / "eval.py")


@pytest.mark.slow
def test_a_run_folder_that_was_moved_is_evaluated_from_anywhere(tmp_path: Path, served: int) -> None:
    from pyarrow import parquet

    _, result = run(tiny_config(tmp_path / "old", "logger=none", "trainer.max_epochs=1"))
    assert result is not None
    moved = shutil.move(run_folder(tmp_path / "old").run_dir, tmp_path / "moved")
    with started(["python", EVAL, f"ckpt={moved}", "split=val"], tmp_path) as tree:
        code = tree.wait(90)
        tree.assert_nothing_left()
    table = parquet.read_table(tmp_path / "moved" / "predictions.parquet")

    assert code == 0, tree.text
    assert f"{result['metrics']['val/acc']:.4f}" in tree.text
    assert tree.text.splitlines()[-1] == f"predictions: {tmp_path}/moved/predictions.parquet"
    assert table["row"].to_pylist() == list(range(11))
    right = [a == b for a, b in zip(table["label"].to_pylist(), table["prediction"].to_pylist(), strict=True)]
    assert sum(right) / 11 == pytest.approx(result["metrics"]["val/acc"])


@pytest.mark.parametrize(
    ("arguments", "code", "last_line"),
    [
        ([], 2, "Predictions go to predictions.parquet in the run's folder."),
        (["split=test"], 2, "ckpt: not given; python eval.py ckpt=PATH"),
        (["ckpt=nowhere"], 2, "ckpt: there is no checkpoint at nowhere; give a .ckpt file or a run's folder"),
        (
            ["ckpt=nowhere", "managers/amp=bf16"],
            2,
            "managers/amp=bf16: is not key=value; a group's choice cannot be changed after the training",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_told_at_once(
    tmp_path: Path, arguments: list[str], code: int, last_line: str
) -> None:
    ended = subprocess.run(
        [sys.executable, EVAL, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )

    assert ended.returncode == code
    assert (ended.stdout + ended.stderr).splitlines()[-1] == last_line
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_debug_runs_in_the_calling_process_where_breakpoints_work(tmp_path: Path) -> None:
    command = tiny(tmp_path, "debug=default", BREAKPOINT)
    with started(command, tmp_path, environ={"PYTHONBREAKPOINT": "tests.helpers.runs.say_where"}) as tree:
        code = tree.wait(90)
        tree.assert_nothing_left()

    assert code == 0, tree.text
    assert f"breakpoint in {tree.pid} with [] below" in tree.text


@pytest.mark.slow
def test_a_profile_is_printed_and_kept_in_the_log(tmp_path: Path) -> None:
    """Lightning reports it by the logger whose other messages are left out."""
    with started(tiny(tmp_path, "debug=profile"), tmp_path) as tree:
        code = tree.wait(90)

    assert code == 0, tree.text
    assert "FIT Profiler Report" in tree.text
    assert "FIT Profiler Report" in run_folder(tmp_path).run_log.read_text()


@pytest.mark.slow
def test_the_debugger_reads_what_is_typed(tmp_path: Path) -> None:
    command = tiny(tmp_path, "debug=overfit", "trainer.max_epochs=1", BREAKPOINT)
    ended = subprocess.run(
        [sys.executable, *command[1:]],
        input="p 'steps so far', trainer.global_step\nc\n",
        env=os.environ | {"PROJECT_ALLOW": "tests.helpers.*"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert "('steps so far', 0)" in ended.stdout


@pytest.mark.slow
def test_an_error_in_a_debug_run_is_shown_where_it_happened(tmp_path: Path) -> None:
    command = tiny(tmp_path, "debug=fdr", "+callbacks.probe._target_=tests.helpers.training.ProbeCallback")
    environ = {"PROBE": "step=0,do=raise"}
    with started([*command, "+callbacks.probe.at=batch_start"], tmp_path, environ=environ) as tree:
        code = tree.wait(90)
        tree.assert_nothing_left()

    assert code == 1
    assert "in _raise" in tree.text
    assert "ProbeError: the probe raised" in tree.text


@pytest.mark.slow
def test_every_debug_choice_runs_in_this_process(tmp_path: Path) -> None:
    choices = sorted(path.stem for path in (ROOT / "conf" / "debug").glob("*.yaml"))
    script = f"""
        import sys
        from pathlib import Path
        from project.training.launch import run
        from tests.helpers.training import tiny_config
        for choice in {choices}:
            outcome, result = run(tiny_config(Path({str(tmp_path)!r}), f"debug={{choice}}", "trainer.max_epochs=1"))
            print("ENDED", choice, outcome.status, "test/acc" in result["metrics"])
    """
    with started(
        ["python", "-c", "\n".join(line[8:] for line in script.splitlines())],
        tmp_path,
        environ={"PYTHONPATH": str(ROOT)},
    ) as tree:
        assert tree.wait(110) == 0, tree.text

    assert [line for line in tree.text.splitlines() if line.startswith("ENDED")] == [
        f"ENDED {choice} completed True" for choice in choices
    ]


@pytest.mark.slow
def test_the_baselines_are_a_task_with_a_table(tmp_path: Path, served: int, capfd: pytest.CaptureFixture[str]) -> None:
    places = (f"paths.runs_dir={tmp_path}/runs", f"paths.cache_dir={tmp_path}/cache", "managers/wandb=disabled")
    small = ("task.data.source.languages=[de,fr]", "task.run.max_features=300", "managers.directory.min_free_mb=0")

    outcome, result = run(compose("+experiment=language_id_baseline", "logger=none", *places, *small))

    assert outcome.exit_code == 0
    assert result is not None
    metrics = result["metrics"]
    assert metrics["majority/test/acc"] < 0.6 < metrics["char_ngrams/test/acc"]
    printed = capfd.readouterr().out
    accuracies = [f"{metrics[f'char_ngrams/{split}/acc']:.4f}" for split in ("val", "test")]
    assert re.search(rf"char_ngrams +│ {' +│ '.join(accuracies)}", printed)
