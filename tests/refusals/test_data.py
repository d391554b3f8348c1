"""Data that will not do ends in one clear text that names the file and line, and leaves no half-made run."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from project.common.errors import DataError
from project.training import launch
from tests.helpers.refusals import QUICK, refused
from tests.helpers.training import tiny_config

pytestmark = pytest.mark.usefixtures("served")


@pytest.mark.parametrize("devices", [1, 2])
def test_an_empty_training_set_is_refused(tmp_path: Path, devices: int) -> None:
    problems = refused(tiny_config(tmp_path, *QUICK, f"trainer.devices={devices}", train=0), DataError)

    assert problems == [
        f"task.data: the training set is empty (0 rows; val 11, test 7); look at {tmp_path}/train.jsonl"
    ]


def test_files_that_hold_no_row_are_named(tmp_path: Path) -> None:
    (tmp_path / "head.csv").write_text("text,label\n")

    (problem,) = refused(tiny_config(tmp_path / "x", *QUICK, f"task.data.files={tmp_path}/head.csv"), DataError)

    assert problem.endswith(f"look at {tmp_path}/head.csv")


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

    assert refused(config, DataError)[0].startswith(f"task.data.files: {file} line 35 column ")


def test_a_row_without_its_text_is_refused_with_file_and_line(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, *QUICK)
    file = tmp_path / "train.jsonl"
    file.write_text(file.read_text() + json.dumps({"body": "x", "label": "aa"}) + "\n")

    (problem,) = refused(config, DataError)

    assert problem.startswith(f"task.data.files: {file} line 35: no field 'text'; fields: ")


def test_a_missing_file_is_refused_with_what_there_is(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, *QUICK)
    (tmp_path / "train.jsonl").unlink()

    assert refused_before_the_folder(config) == [
        f"task.data.files: {tmp_path}/train.jsonl does not exist; {tmp_path} holds test.jsonl, val.jsonl"
    ]


def refused_before_the_folder(config: dict[str, Any]) -> list[str]:
    """The refusal, which comes before there is anything: no folder was made, and removed."""
    with no_folder_made():
        return refused(config)


@contextmanager
def no_folder_made() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "choose_run_folder", lambda config: pytest.fail("a run folder was asked for"))
        yield


FILES = {
    "/": "'/' is not where data lies; name files, or the folder that holds them",
    "' '": "' ' is not where data lies; name files, or the folder that holds them",
    "/dev/null": "/dev/null is neither a file nor a folder (a device, a pipe or a broken link); copy its content",
    "empty": "{folder}/empty holds no file that ends in .csv, ",
    "a.xyz": "{folder}/a.xyz has no known extension; use .csv, ",
    "'*.csv.gz'": "{folder}/*.csv.gz does not exist; {folder} holds ",
    "first.jsonl": "{folder}/first.jsonl line 1 column 10: not JSON (",
    "other.csv": "{folder}/other.csv line 2: no field 'text'; fields: body, label; name yours in task.data.columns",
    "bytes.csv": "{folder}/bytes.csv line 1: byte 0xff is not utf-8; save the file as utf-8, or name its encoding",
    "zero.csv": "{folder}/zero.csv is empty; its first line names the columns",
    "x.parquet": "{folder}/x.parquet after row 0: not Parquet (",
    "{long}.csv": "'{long}.csv' cannot be read (File name too long); give a path that can",
}


@pytest.mark.parametrize(("file", "text"), FILES.items(), ids=FILES.keys())
def test_files_that_will_not_do_are_refused_before_there_is_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.xyz").touch()
    (tmp_path / "first.jsonl").write_text('{"text": oh}\n')
    (tmp_path / "other.csv").write_text("body,label\na,b\n")
    (tmp_path / "bytes.csv").write_bytes(b"te\xffxt,label\na,b\n")
    (tmp_path / "x.parquet").write_text("no")
    (tmp_path / "zero.csv").touch()
    long = "x" * 300
    config = tiny_config(tmp_path, *QUICK, f"task.data.files={file.replace('{long}', long)}")

    (problem,) = refused_before_the_folder(config)

    assert problem.startswith("task.data.files: " + text.format(folder=tmp_path, long=long))


def test_what_no_permission_lets_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, but nobody may read the memory of a kernel thread."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.csv").write_text("text,label\n")
    (tmp_path / "secret.csv").chmod(0)
    if os.access(tmp_path / "secret.csv", os.R_OK):
        (tmp_path / "secret.csv").unlink()
        (tmp_path / "secret.csv").symlink_to("/proc/self/mem")

    (problem,) = refused_before_the_folder(tiny_config(tmp_path, *QUICK, "task.data.files=secret.csv"))

    assert problem.startswith(f"task.data.files: {tmp_path}/secret.csv cannot be read (")
