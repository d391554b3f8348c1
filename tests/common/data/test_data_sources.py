"""Rows of files, folders, globs and datasets; what is wrong with them is told with file and line."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from project.common.data.data_schema import Columns, as_rows
from project.common.data.data_sources import UNSPLIT, files_of, read_files, read_rows
from project.common.errors import DataError
from tests.helpers.data import write_jsonl

ROWS = [{"text": "ein Haus, groß", "label": "de"}, {"text": 'a "house"', "label": "en"}]


def fields(files: Any, **settings: Any) -> list[dict[str, Any]]:
    found = read_files(files, **settings)
    assert list(found) == [UNSPLIT]
    return [record.fields for record in found[UNSPLIT]]


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def test_reads_csv_tsv_json_jsonl_and_parquet_alike(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    files = [
        write(tmp_path / "a.csv", 'text,label\n"ein Haus, groß",de\n"a ""house""",en\n'),
        write(tmp_path / "a.tsv", 'text\tlabel\nein Haus, groß\tde\n"a ""house"""\ten\n'),
        write(tmp_path / "a.json", json.dumps(ROWS, indent=2)),
        write_jsonl(tmp_path / "a.jsonl", ROWS),
        str(tmp_path / "a.parquet"),
    ]

    assert [fields(file) for file in files] == [ROWS] * 5


def test_text_files_give_a_row_per_line_with_file_and_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "de.txt", "eins\n\n  zwei  \r\n")

    assert fields(path) == [{"text": text, "file": "de", "folder": tmp_path.name} for text in ("eins", "zwei")]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "\ufefftext,label\na,b\n")

    assert fields(path) == [{"text": "a", "label": "b"}]


def test_lines_within_quotes_keep_the_line_numbers_right(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\n"two\nlines",x\nlast,y\n')
    records = read_files(path)[UNSPLIT]

    assert [record.where for record in records] == [f"{path} line 2", f"{path} line 4"]
    assert records[0].fields["text"] == "two\nlines"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "a"}\n\n{"text": }\n', r"a\.jsonl line 3 column 10: not JSON"),
        ("a.jsonl", '{"text": "a"}\n[1]\n', r"a\.jsonl line 2: a list, not an object"),
        ("a.json", '[{"text": "a"},\n 5]', r"a\.json item 2: a int, not an object"),
        ("a.csv", "text,label\na,b\nc\n", r"a\.csv line 3: 1 fields, but the header has 2"),
        ("a.csv", "text,text\na,b\n", r"a\.csv line 1: column 'text' is there twice"),
        ("a.csv", 'text,label\na,b\n"c,d\n', r"a\.csv line 3: unexpected end of data"),
        ("a.csv", b"text,label\ngut,de\ncaf\xe9,fr\n", r"a\.csv line 3: byte 0xe9 is not utf-8"),
        ("a.parquet", b"PAR1 and then nothing", r"a\.parquet after row 0: not Parquet"),
        ("a.docx", "x", r"a\.docx has no known extension; use \.csv"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = write(tmp_path / name, content)

    with pytest.raises(DataError, match=message):
        read_files(path)


def test_another_encoding_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text\ncafé\n".encode("latin-1"))

    assert fields(path, encoding="latin-1") == [{"text": "café"}]
    with pytest.raises(DataError, match="encoding: 'klingon' is unknown"):
        read_files(path, encoding="klingon")


def test_a_missing_file_is_told_with_what_is_there(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", ROWS)

    with pytest.raises(DataError, match=r"trian\.jsonl does not exist; .* holds train\.jsonl"):
        read_files(str(tmp_path / "trian.jsonl"))


def test_an_unknown_hub_name_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    with pytest.raises(DataError, match="'nobody/nothing' is no file here, and as a dataset of the hub"):
        read_files("nobody/nothing", base_dir=tmp_path)


def test_in_a_folder_the_names_of_files_say_which_split_they_are(tmp_path: Path) -> None:
    for name in ("train-00001-of-00002", "train-00000-of-00002", "validation", "test"):
        write_jsonl(tmp_path / f"{name}.jsonl", [{"text": name}])
    write(tmp_path / "README.md", "not data")
    found = read_files(str(tmp_path))

    assert {split: [record.fields["text"] for record in records] for split, records in found.items()} == {
        "test": ["test"],
        "train": ["train-00000-of-00002", "train-00001-of-00002"],
        "val": ["validation"],
    }


def test_globs_and_lists_are_read_in_order_and_mappings_by_split(tmp_path: Path) -> None:
    for name in "cab":
        write_jsonl(tmp_path / f"{name}.jsonl", [{"text": name}])

    assert [row["text"] for row in fields("*.jsonl", base_dir=tmp_path)] == ["a", "b", "c"]
    assert [row["text"] for row in fields(["c.jsonl", "a.jsonl"], base_dir=tmp_path)] == ["c", "a"]
    found = read_files({"train": ["a.jsonl", "b.jsonl"], "dev": "c.jsonl", "test": None}, base_dir=tmp_path)
    assert {split: len(records) for split, records in found.items()} == {"train": 2, "val": 1}
    files = files_of({"train": ["a.jsonl", "b.jsonl"], "dev": "c.jsonl", "test": None}, base_dir=tmp_path)
    assert [file.name for file in files] == ["a.jsonl", "b.jsonl", "c.jsonl"]


def test_saved_datasets_are_read_with_the_names_of_their_classes(tmp_path: Path) -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    dataset = Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    DatasetDict({"train": dataset, "validation": dataset}).save_to_disk(str(tmp_path / "both"))
    dataset.save_to_disk(str(tmp_path / "one"))

    assert [row["label"] for row in fields(str(tmp_path / "one"))] == ["yes", "no"]
    found = read_files(str(tmp_path / "both"))
    assert {split: [record.fields["label"] for record in rows] for split, rows in found.items()} == {
        "train": ["yes", "no"],
        "val": ["yes", "no"],
    }


def test_a_source_gives_rows_or_a_mapping_from_split_to_rows() -> None:
    rows = read_rows(ROWS, origin="load")

    assert [record.where for record in rows[UNSPLIT]] == ["load row 0", "load row 1"]
    assert list(read_rows({"train": ROWS, "validation": ROWS}, origin="load")) == ["train", "val"]
    with pytest.raises(DataError, match="load row 0: a str, not a mapping"):
        read_rows(["text"], origin="load")


def test_a_missing_field_is_told_with_file_line_and_the_fields_there(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "train.jsonl", [ROWS[0], {"body": "x", "label": "y"}])

    with pytest.raises(DataError, match=r"train\.jsonl line 2: no field 'text'; fields: body, label"):
        as_rows(read_files(path)[UNSPLIT], columns=Columns())


def test_empty_fields_are_refused_or_dropped(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [ROWS[0], {"text": "  ", "label": "y"}, {"text": "x", "label": None}])
    records = read_files(path)[UNSPLIT]

    with pytest.raises(DataError, match=r"line 2: field 'text' is empty(.|\n)*line 3: field 'label' is empty"):
        as_rows(records, columns=Columns())
    assert [row["text"] for row in as_rows(records, columns=Columns(), on_empty="drop")] == [ROWS[0]["text"]]


def test_only_the_first_problems_are_listed_and_the_rest_counted(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": 5, "label": "y"}] * 30)

    with pytest.raises(DataError, match=r"line 1: 'text' is a int, not text(.|\n)*\.\.\. and 25 more rows$"):
        as_rows(read_files(path)[UNSPLIT], columns=Columns())
