"""Data: read, checked, split and tokenised once per machine, and mapped by every process."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from project.common.errors import ConfigError, DataError
from project.common.managers.data import DataManager
from project.common.processes.identity import Identity, Role, current_identity, set_identity
from project.common.whitelist import ALLOW_VARIABLE
from tests.helpers.data import (
    HELPERS,
    SPLIT,
    data_manager,
    in_letters,
    result_of,
    start_preparing,
    tokenizer_manager,
    word_rows,
    write_jsonl,
)

DEADLINE_S = 60


@pytest.fixture(autouse=True)
def role(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Set here, so that what the tokenizer managers of these tests put there is taken back.
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setenv(ALLOW_VARIABLE, f"{HELPERS}.*")
    before = current_identity()
    set_identity(Identity(role=Role.RANK, rank=0))
    yield
    set_identity(before)


def prepared(folder: Path, **settings: Any) -> DataManager:
    data = data_manager(folder, **settings)
    data.prepare()
    return data


def noted(note: Path, wait_s: float = 0.0) -> dict[str, Any]:
    return {"_target_": f"{HELPERS}.noted_source", "note": str(note), "wait_s": wait_s}


def test_rows_of_a_source_are_split_tokenised_and_numbered(tmp_path: Path) -> None:
    data = prepared(tmp_path, source=noted(tmp_path / "note"))
    dataset = data.dataset("train")

    assert isinstance(dataset, Dataset)
    assert data.labels == ["a", "b"]
    assert data.splits == ["train", "val", "test"]
    assert [data.n_rows(split) for split in data.splits] == [24, 8, 8]
    assert dataset["row"][:] == list(range(24))
    assert data.lengths("train").tolist() == [len(ids) for ids in dataset["input_ids"]] == dataset["length"][:]
    assert sorted(text for split in data.splits for text in data.texts(split)) == sorted(r["text"] for r in word_rows())
    of_text = {row["text"]: row["label"] for row in word_rows()}
    assert [data.labels[number] for number in dataset["label"]] == [of_text[text] for text in data.texts("train")]


def test_what_a_worker_reads_is_what_the_dataset_holds(tmp_path: Path) -> None:
    data = prepared(tmp_path, source=noted(tmp_path / "note"))
    rows, dataset = data.rows("val"), data.dataset("val").remove_columns("text")
    read = [{name: np.asarray(value).tolist() for name, value in rows[index].items()} for index in range(len(rows))]

    assert read == dataset.to_list()


def test_texts_are_cut_to_max_length(tmp_path: Path) -> None:
    data = prepared(tmp_path, source=noted(tmp_path / "note"), max_length=4)

    assert int(data.lengths("train").max()) == 4


def test_the_tokenizer_is_trained_on_the_training_split_alone(tmp_path: Path) -> None:
    files = {
        "train": write_jsonl(tmp_path / "train.jsonl", [{"text": "aaa bbb", "label": "x"}] * 3),
        "val": write_jsonl(tmp_path / "val.jsonl", [{"text": "zzz", "label": "x"}]),
    }
    tokenizer = tokenizer_manager(tmp_path)
    prepared(tmp_path, tokenizer=tokenizer, files=files)

    vocabulary = tokenizer.tokenizer.get_vocab()
    assert any("a" in piece for piece in vocabulary)
    assert not any("z" in piece for piece in vocabulary)


def test_files_win_over_the_source_and_val_is_taken_from_train(tmp_path: Path) -> None:
    rows = [{"body": row["text"], "lang": row["label"]} for row in word_rows()]
    files = {
        "train": write_jsonl(tmp_path / "train.jsonl", rows),
        "test": write_jsonl(tmp_path / "test.jsonl", rows[:4]),
    }
    data = prepared(tmp_path, source=noted(tmp_path / "note"), files=files, columns={"text": "body", "label": "lang"})

    assert not (tmp_path / "note").exists()
    assert {split: data.n_rows(split) for split in data.splits} == {"train": 32, "val": 8, "test": 4}
    assert not set(data.texts("train")) & set(data.texts("val"))


def test_numbers_as_labels_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    rows = [{"text": f"word {i}", "label": i % 12} for i in range(48)]
    data = prepared(tmp_path, files={"train": (f := write_jsonl(tmp_path / "a.jsonl", rows)), "val": f})

    assert data.labels == [str(number) for number in range(12)]


@pytest.mark.parametrize(
    ("train", "val", "message"),
    [
        ([{"text": "a", "label": "x"}, {"body": "a", "label": "x"}], [], r"train\.jsonl line 2: no field 'text'"),
        ([{"text": "a", "label": "x"}], [{"text": "b", "label": "y"}], r"val\.jsonl line 1: label 'y' of split val"),
        ([], [{"text": "b", "label": "y"}], r"training set is empty \(0 rows; val 1\)"),
        ([{"text": "", "label": "x"}], [], r"train\.jsonl line 1: field 'text' is empty"),
    ],
)
def test_faulty_data_is_told_with_file_and_line_or_numbers(
    tmp_path: Path, train: list[dict[str, Any]], val: list[dict[str, Any]], message: str
) -> None:
    files = {"train": write_jsonl(tmp_path / "train.jsonl", train), "val": write_jsonl(tmp_path / "val.jsonl", val)}

    with pytest.raises(DataError, match=message):
        prepared(tmp_path, files=files)
    assert not list((tmp_path / "cache" / "data").glob("*/*.arrow")) if (tmp_path / "cache" / "data").exists() else True


def test_an_empty_source_is_an_error_with_the_numbers(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the training set is empty \(0 rows"):
        prepared(tmp_path, source={"_target_": f"{HELPERS}.no_rows"})


def test_rows_of_one_group_stay_in_one_split(tmp_path: Path) -> None:
    rows = [{"text": f"text {in_letters(i)}", "label": "ab"[i % 2], "source": f"s{i // 4}"} for i in range(80)]
    data = prepared(tmp_path, files=write_jsonl(tmp_path / "a.jsonl", rows), columns={"group": "source"})
    group_of = {row["text"]: row["source"] for row in rows}
    groups = [{group_of[text] for text in data.texts(split)} for split in data.splits]

    assert sum(len(group) for group in groups) == len(set.union(*groups)) == 20


def test_a_split_that_cannot_be_made_is_told_with_its_key(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "a", "label": "x"}])

    with pytest.raises(DataError, match=r"task\.data\.split: fractions: no rows left for"):
        prepared(tmp_path, files=path)
    with pytest.raises(DataError, match=r"task\.data\.split: null, but no files are named for train and val"):
        prepared(tmp_path, files=path, split=None)


def test_texts_are_packed_into_blocks_for_language_modelling(tmp_path: Path) -> None:
    tokenizer = tokenizer_manager(tmp_path)
    data = prepared(
        tmp_path,
        tokenizer=tokenizer,
        source=noted(tmp_path / "note"),
        columns={"label": None},
        max_length=7,
        pack=True,
    )
    blocks = [data.rows("train")[i]["input_ids"].tolist() for i in range(data.n_rows("train"))]
    plain = prepared(tmp_path, tokenizer=tokenizer, source=noted(tmp_path / "note"), columns={"label": None})
    tokens = [token for ids in plain.dataset("train")["input_ids"] for token in ids]

    assert {len(block) for block in blocks} == {7}
    assert [token for block in blocks for token in block] == tokens[: len(blocks) * 7]
    assert len(tokens) - len(blocks) * 7 < 7
    assert data.labels == []


def test_features_need_neither_text_nor_tokenizer(tmp_path: Path) -> None:
    rows = [{"pixels": [[i, 1], [2, 3]], "label": i % 2} for i in range(20)]
    settings = {"tokenizer": None, "columns": {"text": None, "features": "pixels"}}
    data = prepared(tmp_path, files=write_jsonl(tmp_path / "a.jsonl", rows), **settings)

    assert data.rows("train")[0]["features"].tolist()[1:] == [1, 2, 3]
    assert sum(data.n_rows(split) for split in data.splits) == 20
    rows[3]["pixels"] = [1]  # type: ignore[assignment]
    with pytest.raises(DataError, match=r"line 4: 1 features, but .* line \d+ has 4|line \d+: 4 features, but"):
        prepared(tmp_path, files=write_jsonl(tmp_path / "b.jsonl", rows), **settings)


def test_impossible_settings_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        data_manager(tmp_path, max_length=0, on_empty="skip", pack=True)

    keys = [problem.partition(":")[0] for problem in caught.value.problems]
    assert keys == ["task.data.files", "managers.data.on_empty", "task.data.max_length", "task.data.pack"]
    with pytest.raises(ConfigError, match=r"task\.data\.columns\.txt: is unknown; there are text, label"):
        data_manager(tmp_path, columns={"txt": "body"})


def test_an_unknown_split_is_told_with_those_there(tmp_path: Path) -> None:
    data = prepared(tmp_path, source=noted(tmp_path / "note"))

    assert data.n_rows("holdout") == 0
    with pytest.raises(DataError, match="no split 'holdout'; there are train, val, test"):
        data.dataset("holdout")


def test_what_is_prepared_is_found_and_changed_data_is_prepared_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_jsonl(path, word_rows())
    first = prepared(tmp_path, files=str(path))
    again = prepared(tmp_path, files=str(path))
    write_jsonl(path, word_rows(41))
    changed = prepared(tmp_path, files=str(path))
    other_seed = prepared(tmp_path, files=str(path), split={**SPLIT, "seed": 2})
    shorter = prepared(tmp_path, files=str(path), max_length=5)

    assert first.fingerprint == again.fingerprint
    assert len({data.fingerprint for data in (first, changed, other_seed, shorter)}) == 4


def test_a_damaged_file_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = prepared(tmp_path, source=noted(tmp_path / "note"))
    path, content = data.path("train"), data.path("train").read_bytes()
    path.write_bytes(content[: len(content) // 2])
    again = prepared(tmp_path, source=noted(tmp_path / "note"))

    assert again.path("train").read_bytes() == content
    assert "is made again" in caplog.text


@pytest.mark.case("87")
@pytest.mark.slow
def test_prepares_once_for_all_processes_and_the_same_under_any_hash_seed(tmp_path: Path) -> None:
    settings = {"source": noted(tmp_path / "note", wait_s=2)}
    folders = {"1": tmp_path, "2": tmp_path, "3": tmp_path / "other"}
    children = [start_preparing(folder, settings, PYTHONHASHSEED=seed) for seed, folder in folders.items()]
    results = [json.loads(result_of(child)) for child in children]

    assert results[0] == results[1] == results[2]
    # One for the tokenizer and the data of the first folder, one for the other's.
    assert len((tmp_path / "note").read_text().splitlines()) == 2


def test_what_a_killed_process_left_half_made_is_made_again(tmp_path: Path) -> None:
    note = tmp_path / "note"
    child = start_preparing(tmp_path, {"source": noted(note, wait_s=30)})
    deadline = time.monotonic() + DEADLINE_S
    while not note.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=DEADLINE_S)
    data = prepared(tmp_path, source=noted(note))

    assert data.check().ok
    assert [data.n_rows(split) for split in data.splits] == [24, 8, 8]
    assert not [path for path in (tmp_path / "cache").rglob("*") if ".tmp-" in path.name]


def test_health_names_a_file_that_vanished(tmp_path: Path) -> None:
    data = prepared(tmp_path, source=noted(tmp_path / "note"))
    data.path("val").unlink()

    assert not data.check().ok
    assert "val vanished" in data.check().reason
