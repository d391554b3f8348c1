"""Settings that cannot work end in one clear text that names the key, and leave no half-made run."""

import threading
from pathlib import Path

import pytest

from tests.helpers import managers as doubles
from tests.helpers.refusals import QUICK, refused
from tests.helpers.training import tiny_config

pytestmark = pytest.mark.usefixtures("served")

LIGHT = {
    "trainer.max_epochs=few": "trainer.max_epochs: 'few' does not fit; use a whole number or null, at least -1",
    "name=": "name: '' cannot be a folder's name; use letters, digits, '-', '_' and '.'",
    "name=a/b": "name: 'a/b' cannot be a folder's name",
    "name=5": "name: 5 does not fit; use text",
    "seed=abc": "seed: 'abc' does not fit; use a whole number, at least 0",
    "seed=null": "seed: None does not fit; use a whole number, at least 0",
    "loader.batch_size=-1": "loader.batch_size: -1 does not fit; use a whole number or null, at least 1",
    "loader.num_workers=-2": "loader.num_workers: -2 does not fit; use a whole number, at least 0 and at most 512",
    "trainer.devices=0": "trainer.devices: 0 does not fit; use a whole number or a list of whole numbers",
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
    "task.data.columns.group=[1]": "task.data.columns.group: [1] does not fit; use text or null",
    "task.data.files={train:3}": "task.data.files.train: 3 does not fit; use text or a list of text or null",
    "task.model=null": "task.model: None does not fit; give it a _target_",
    "task.optimizer=null": "task.optimizer: None does not fit; give it a _target_",
    "task.baselines=[a]": "task.baselines: ['a'] does not fit; give it a _target_, or null",
    "task.metrics.acc=3": "task.metrics.acc: 3 does not fit; give it a _target_, or remove it",
    "managers.data._recursive_=true": "managers.data._recursive_: true would build 'source' too early",
    "managers.metrics._recursive_=true": "managers.metrics._recursive_: true would build 'metrics' too early",
    "managers.data._recursive_=often": "managers.data._recursive_: 'often' does not fit; use true or false",
    "+managers.data._convert_=some": "managers.data._convert_: 'some' does not fit; use none, partial, object, all",
    "+managers.data._args_=[1]": "managers.data._args_: DataManager does not take 1 values without names",
    "managers.cuda.deterministic=0": "managers.cuda.deterministic: 0 does not fit; use true or false",
    "+trainer.deterministic=true": "trainer.deterministic: is decided by managers.cuda.deterministic; remove it",
    "+trainer.benchmark=true": "trainer.benchmark: is decided by managers.cuda.cudnn_benchmark; remove it",
    "trainer.val_check_interval=0": "trainer.val_check_interval: 0 does not fit; use a number or text or null, ",
    "trainer.log_every_n_steps=0": "trainer.log_every_n_steps: 0 does not fit; use a whole number or null, at least 1",
    "trainer.detect_anomaly=0": "trainer.detect_anomaly: 0 does not fit; use true or false",
    "processes.close_timeout_s=inf": "processes.close_timeout_s: inf does not fit; use a number or null, more",
    "processes.stall_timeout_s=0": "processes.stall_timeout_s: 0 does not fit; use a number or null, more than 0 and",
    "processes.threads=null": "processes.threads: None does not fit; use a whole number or auto, at least 1 and",
    "processes.roles.data=[worker]": "processes.roles.data: leaves out rank, where a run needs it; add rank",
    "managers.amp=null": "managers.amp: is not there, but a run needs it; choose managers/amp=default",
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
    "task.model._target_=project.tasks.models.text_clasifier": "task.model._target_: 'project.tasks.models.text_clasif",
    "+callbacks.checkpoint._partial_=true": "callbacks.checkpoint._partial_: true leaves it half-built; remove the key",
    "+callbacks.checkpoint._args_=[1]": "callbacks.checkpoint._args_: Checkpoints does not take 1 values without names",
    "managers.directory.name='..'": "name: '..' cannot be a folder's name; use letters, digits, '-', '_' and '.'",
    "trainer.accelerator=gpu": "trainer.accelerator: cuda was asked for, and no such device is here; use cpu or auto",
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
    "task.model.width=7": "task.model: width: 7 is not a multiple of 32; use 32, 64, 96, 128, ... (",
    "task.optimizer.lr=-1": "task.optimizer: Invalid learning rate: -1 (",
    "callbacks.checkpoint.mode=most": "callbacks.checkpoint: mode: 'most' is neither; use min or max (",
    "callbacks.checkpoint.every_n_steps=0": "callbacks.checkpoint: every_n_steps: 0 is no distance; use 1 or more",
    "trainer.val_check_interval=1000": "trainer.val_check_interval: 1000 batches, but an epoch has 9; use at most that",
    "trainer.limit_val_batches=0.01": "trainer: Lightning refuses it: You requested to check 0.01 of",
    "task.data.columns.label=null": "task.data.columns.label: null leaves no classes, but project.tasks.models.text_",
    "task.tokenizer.vocab_size=1000000000000": "task.tokenizer: vocab_size: 1000000000000 is more than fits into",
    "task.tokenizer.min_frequency=-1": "task.tokenizer: min_frequency: -1 is no number of times; use 0 or more",
    "task.model.dropout=nan": "task.model: dropout: nan is no share of what may be dropped; use",
    "logger.csv.file_name=checkpoints/last.ckpt": "logger.csv: file_name: 'checkpoints/last.ckpt' would lie elsewhere",
}


@pytest.mark.parametrize(("override", "text"), BUILT.items(), ids=BUILT.keys())
def test_a_value_that_its_target_refuses_is_no_half_made_run(tmp_path: Path, override: str, text: str) -> None:
    """It was a crash with a traceback, and a folder that the next command went on in."""
    (problem,) = refused(tiny_config(tmp_path, "trainer.max_epochs=1", "resume=never", "logger=csv", override))

    assert problem.startswith(text)


def test_a_misspelt_function_of_a_task_is_refused_with_the_nearest(tmp_path: Path) -> None:
    (problem,) = refused(tiny_config(tmp_path, *QUICK, "task.model._target_=project.tasks.models.text_clasifier"))

    assert problem.endswith("; did you mean 'project.tasks.models.text_classifier'?")
