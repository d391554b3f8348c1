"""What cannot work ends in one clear text that names the key, or the file and line, and leaves no half-made run."""

import fcntl
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from project.common.errors import CheckpointError, ConfigError, DataError, ProjectError
from project.common.files.layout import RunLayout
from project.training.launch import run
from tests.helpers import managers as doubles
from tests.helpers.training import ROOT, TINY, compose, tiny_config
from tests.helpers.tree import running

pytestmark = pytest.mark.usefixtures("served")
QUICK = ("logger=none", "trainer.max_epochs=1", "resume=never")


def refused(config: dict[str, Any], kind: type[ProjectError] = ConfigError) -> list[str]:
    """The lines of the refusal; nothing may be left of the run, not even the folder of runs."""
    runs_dir = Path(config["paths"]["runs_dir"])
    existed = runs_dir.exists()
    with pytest.raises(kind) as caught:
        run(config)
    assert caught.type is kind
    assert runs_dir.exists() == existed
    return str(caught.value).splitlines()


LIGHT = {
    "trainer.max_epochs=few": "trainer.max_epochs: 'few' does not fit; use a whole number or null, at least -1",
    "seed=abc": "seed: 'abc' does not fit; use a whole number, at least 0",
    "seed=null": "seed: None does not fit; use a whole number, at least 0",
    "loader.batch_size=-1": "loader.batch_size: -1 does not fit; use a whole number or null, at least 1",
    "loader.num_workers=-2": "loader.num_workers: -2 does not fit; use a whole number, at least 0 and at most 512",
    "trainer.devices=0": "trainer.devices: 0 does not fit; use a whole number or a list of a whole number",
    "processes.deadline_s=-1": "processes.deadline_s: -1 does not fit; use a number, at least 1",
    "processes.start_method=fork": "processes.start_method: 'fork' copies locks, threads and CUDA's state half-way",
    "+processes.deadlin=3": "processes.deadlin: is no setting of processes; did you mean 'deadline_s'?",
    "+trianer.x=1": "trianer: is no key of this configuration; did you mean 'trainer'?",
    "resume=/nonexistent": "resume: there is no folder '/nonexistent'; use auto, never or a run's folder",
    "ckpt_path=/nonexistent.ckpt": "ckpt_path: there is no file '/nonexistent.ckpt'; give a checkpoint, or null",
    "objective.mode=most": "objective.mode: 'most' is neither; use min or max",
    "managers.amp.dtype=bf17": "managers.amp.dtype: 'bf17'",
    "+managers.amp.colour=red": "managers.amp.colour",
    "~managers.directory": "managers.tokenizer: needs 'directory', which is not configured; add managers/directory",
    "managers/tokenizer=pretrained": "managers.tokenizer.pretrained: has no value; give it one",
    "task.model._target_=os.system": "task.model._target_: 'os.system'",
}


@pytest.mark.parametrize(("override", "text"), LIGHT.items(), ids=LIGHT.keys())
def test_main_refuses_what_it_can_see_without_torch(tmp_path: Path, override: str, text: str) -> None:
    problems = refused(tiny_config(tmp_path, *QUICK, override))

    assert [line for line in problems if line.startswith(text)], problems


HEAVY = {
    "managers.directory.min_free_mb=1000000000": "managers.directory.min_free_mb: ",
    "task.optimizer.lr=fast": "task.optimizer.lr: 'fast' does not fit; use a number",
    "+trainer.max_epoch=3": "trainer.max_epoch: Trainer takes no 'max_epoch'; did you mean 'max_epochs'?",
    "+task.model.widht=3": "task.model.widht: text_classifier takes no 'widht'; did you mean 'width'?",
    "task.model._target_=project.tasks.models.nothing": "task.model._target_: ",
    "trainer.accelerator=gpu": "trainer.accelerator: cuda was asked for and there is none here; use cpu or auto",
}


@pytest.mark.parametrize(("override", "text"), HEAVY.items(), ids=HEAVY.keys())
def test_a_child_refuses_what_takes_torch_to_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str, text: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # also where there are devices

    problems = refused(tiny_config(tmp_path, *QUICK, override))

    assert len(problems) == 1
    assert problems[0].startswith(text)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    problems = refused(tiny_config(tmp_path, *QUICK, "seed=abc", "loader.batch_size=0", "objective.mode=most"))

    assert {line.partition(":")[0] for line in problems} >= {"seed", "loader.batch_size", "objective.mode"}


def test_managers_that_need_each_other_are_shown_in_a_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECT_ALLOW", doubles.ALLOWED)
    config = tiny_config(tmp_path, *QUICK)
    config["managers"] |= doubles.config_of("hen", "egg")["managers"]

    assert refused(config) == ["managers need each other in a circle: egg -> hen -> egg"]


def test_nothing_but_plain_data_may_be_handed_to_processes(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, *QUICK)
    config["user"] = {"layers": [1, threading.Lock()]}

    assert refused(config) == [
        "user.layers.1: lock is no plain value; use text, numbers, true, false, null, lists and dicts"
    ]


BUILT = {
    "task.model.width=7": "managers.model.model: width: 7 is not a multiple of 32; use 32, 64, 96, 128, ... (",
    "task.optimizer.lr=-1": "task.optimizer: Invalid learning rate: -1 (",
    "callbacks.checkpoint.mode=most": "callbacks.checkpoint: mode: 'most' is neither; use min or max (",
    "callbacks.checkpoint.every_n_steps=0": "callbacks.checkpoint: every_n_steps: 0 is no distance; use 1 or more",
    "logger.csv.file_name=checkpoints/last.ckpt": "logger.csv: file_name: 'checkpoints/last.ckpt' would lie elsewhere",
}


@pytest.mark.parametrize(("override", "text"), BUILT.items(), ids=BUILT.keys())
def test_a_value_that_its_target_refuses_is_no_half_made_run(tmp_path: Path, override: str, text: str) -> None:
    """It was a crash with a traceback, and a folder that the next command went on in."""
    (problem,) = refused(tiny_config(tmp_path, "trainer.max_epochs=1", "resume=never", "logger=csv", override))

    assert problem.startswith(text)


@pytest.mark.parametrize("devices", [1, 2])
def test_an_empty_training_set_is_refused(tmp_path: Path, devices: int) -> None:
    problems = refused(tiny_config(tmp_path, *QUICK, f"trainer.devices={devices}", train=0), DataError)

    assert problems == [
        "task.data: the training set is empty (0 rows; val 11, test 7); look at the source and its filters"
    ]


def test_a_batch_larger_than_the_data_is_refused_with_the_numbers(tmp_path: Path) -> None:
    problems = refused(
        tiny_config(tmp_path, *QUICK, "loader.batch_size=100", "managers.batch.last_batch=drop"), DataError
    )

    assert len(problems) == 1
    assert problems[0].startswith("loader.batch_size: 34 training rows in batches of 100 on 1 ranks with last_batch=dr")
    assert problems[0].endswith("use a batch size of at most 34, or fewer ranks")


def test_malformed_data_is_refused_with_file_and_line(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, *QUICK)
    file = tmp_path / "train.jsonl"
    file.write_text(file.read_text() + '{"text": "cut off\n')

    assert refused(config, DataError)[0].startswith(f"data.files: {file} line 35 column ")


def test_a_row_without_its_text_is_refused_with_file_and_line(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, *QUICK)
    file = tmp_path / "train.jsonl"
    file.write_text(file.read_text() + json.dumps({"body": "x", "label": "aa"}) + "\n")

    (problem,) = refused(config, DataError)

    assert problem.startswith(f"data.files: {file} line 35: no field 'text'; fields: ")


def test_a_missing_file_is_refused_with_what_there_is(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, *QUICK)
    (tmp_path / "train.jsonl").unlink()

    (problem,) = refused(config, DataError)

    assert problem.startswith(f"data.files: {tmp_path}/train.jsonl does not exist; {tmp_path} holds ")


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    (problem,) = refused(tiny_config(tmp_path, *QUICK, f"paths.runs_dir={tmp_path}/file/runs"))

    assert problem == (
        f"paths.runs_dir: {tmp_path}/file/runs/tiny cannot be written to (Not a directory); give a folder that can"
    )


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, _session: None) -> bytes:
    """A good one, of a model of width 32."""
    folder = tmp_path_factory.mktemp("good")
    _, result = run(tiny_config(folder, *QUICK))
    assert result is not None
    return Path(result["last_checkpoint"]).read_bytes()


def test_a_truncated_checkpoint_is_refused(tmp_path: Path, checkpoint: bytes) -> None:
    path = tmp_path / "cut.ckpt"
    path.write_bytes(checkpoint[:-100])

    (problem,) = refused(tiny_config(tmp_path, *QUICK, f"ckpt_path={path}"), CheckpointError)

    assert problem.startswith(f"{path}: cut off or not a checkpoint")


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path, checkpoint: bytes) -> None:
    path = tmp_path / "other.ckpt"
    path.write_bytes(checkpoint)

    (problem,) = refused(tiny_config(tmp_path, *QUICK, f"ckpt_path={path}", "task.model.width=64"), CheckpointError)

    assert problem.startswith(f"{path}: holds another model's weights: ")
    assert problem.endswith("give the task.model settings it was trained with")


def test_a_new_run_starts_from_a_good_checkpoint(tmp_path: Path, checkpoint: bytes) -> None:
    path = tmp_path / "good.ckpt"
    path.write_bytes(checkpoint)

    outcome, result = run(tiny_config(tmp_path, *QUICK, f"ckpt_path={path}", "trainer.max_epochs=2"))

    assert outcome.exit_code == 0
    assert result is not None
    assert result["step"] == 18


def test_two_mains_never_own_one_folder(tmp_path: Path) -> None:
    outcome, _ = run(compose_trivial(tmp_path))
    (folder,) = (tmp_path / "runs" / "trivial").iterdir()
    with open(RunLayout(folder).owner, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        problems = refused(compose_trivial(tmp_path, f"resume={folder}"))

    assert outcome.exit_code == 0
    assert problems == [f"resume: {folder} is owned by a running process; wait for it, or stop it"]


def test_a_folder_of_another_configuration_is_not_taken_up(tmp_path: Path) -> None:
    run(compose_trivial(tmp_path))
    (folder,) = (tmp_path / "runs" / "trivial").iterdir()

    [line] = refused(compose_trivial(tmp_path, f"resume={folder}", "seed=2"))

    assert line == (
        f"resume: {folder} ran another configuration (seed: 1, not 2, managers.batch.seed: 1, not 2); give these back, "
        "or start a new run from its checkpoint with ckpt_path="
    )
    assert refused(compose_trivial(tmp_path, f"resume={tmp_path}")) == [
        f"resume: {tmp_path} is not a run folder; give one below paths.runs_dir, auto or never"
    ]


def compose_trivial(folder: Path, *overrides: str) -> dict[str, Any]:
    return compose(
        "+experiment=trivial", "managers/wandb=disabled", "logger=none", f"paths.runs_dir={folder}/runs", *overrides
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"file systems cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_fills_up_while_saving_is_named(tmp_path: Path, small_disk: Path) -> None:
    config = tiny_config(
        tmp_path, *QUICK, f"paths.runs_dir={small_disk}/runs", "task.model.width=128", "task.model.n_layers=2"
    )

    outcome, _ = run(config)

    assert outcome.exit_code == 1
    assert outcome.cause is not None
    assert ".ckpt: could not be written, no space left on the disk; free some, or set paths.runs_dir" in outcome.cause
    assert not list(small_disk.rglob("*.tmp-*"))


def refusal_of_command(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output of train.py."""
    with running(["python", str(ROOT / "train.py"), *arguments], output=tmp_path / "output", cwd=tmp_path) as tree:
        code = tree.wait(90)
        tree.assert_nothing_left()
        return code, tree.text


COMMANDS = {
    "managers/amp=bf17": "Could not find 'managers/amp/bf17'",
    "trainer.max_epoch=3": "Did you mean one of: 'max_epochs'",
    "manager/amp=bf16": "Did you mean: 'managers'?",
    "processes.start_method=fork": "processes.start_method: 'fork' copies locks",
}


@pytest.mark.slow
@pytest.mark.parametrize(("argument", "text"), COMMANDS.items(), ids=COMMANDS.keys())
def test_a_refused_command_line_ends_with_code_2_and_without_a_traceback(
    tmp_path: Path, argument: str, text: str
) -> None:
    code, output = refusal_of_command(tmp_path, argument)

    assert code == 2
    assert text in output
    assert "Traceback" not in output
    assert os.listdir(tmp_path) == ["output"]


@pytest.mark.slow
def test_refused_data_ends_the_command_with_its_text_last(tmp_path: Path) -> None:
    (tmp_path / "my.jsonl").write_text("{}\n")

    code, output = refusal_of_command(
        tmp_path, *(item for item in TINY if "task.data" not in item), "task.data.files=my.jsonl", "paths.cache_dir=c"
    )

    assert code == 1
    assert output.splitlines()[-1].startswith("data.files: ")
    assert "my.jsonl line 1: no field 'text'" in output.splitlines()[-1]
    assert "Traceback" not in output
    assert not (tmp_path / "runs").exists()
