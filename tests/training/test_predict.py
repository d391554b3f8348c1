"""Predictions for new data: what eval.py says of the same texts, from the checkpoint alone."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from project.common.errors import CheckpointError, ConfigError, DataError
from project.common.files.atomic import write_json
from project.common.files.checkpoint_file import load_checkpoint_file, save_checkpoint_file
from project.common.processes import process_server
from project.predict import predict_command
from project.training.evaluate import evaluate
from tests.helpers.training import Run, tiny_config, train
from tests.helpers.tree import running

TEXTS = ["aa one", "bbbb two, and a longer one", "cc", '"quoted", with a comma']


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One training for all tests here, which only read its folder."""
    folder = tmp_path_factory.mktemp("trained")
    process_server.start()
    process_server.wait_until_ready()
    found = train(tiny_config(folder / "data", "trainer.max_epochs=1"), folder / "run")
    write_json(found.layout.config, {})
    return found


@pytest.fixture
def run(trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return trained


def predicted(path: Path) -> dict[str, list[Any]]:
    from pyarrow import parquet

    found: dict[str, list[Any]] = parquet.read_table(path).to_pydict()
    return found


def write_inputs(folder: Path) -> list[str]:
    """The same rows in each form."""
    import csv

    import pyarrow as pa
    from pyarrow import parquet

    with (folder / "new.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in TEXTS)])
    (folder / "new.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    (folder / "new.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    parquet.write_table(pa.table({"text": TEXTS}), folder / "new.parquet")
    return ["new.csv", "new.jsonl", "new.txt", "new.parquet"]


def test_every_form_of_input_gives_the_same_predictions_without_the_training_data(run: Run, tmp_path: Path) -> None:
    checkpoint = shutil.copy(run.layout.checkpoint("best"), tmp_path / "alone.ckpt")
    data = run.layout.run_dir.parent / "data"
    data.rename(data.with_name("moved"))

    tables = []
    for name in write_inputs(tmp_path):
        assert predict_command([f"ckpt={checkpoint}", f"input={name}", "loader.batch_size=3"]) == 0
        tables.append(predicted(tmp_path / f"{Path(name).stem}.predictions.parquet"))

    assert list(tables[0]) == ["row", "text", "label", "probability", "probabilities"]
    assert tables[0]["row"] == [0, 1, 2, 3]
    assert tables[0]["text"] == TEXTS
    assert all(table == tables[0] for table in tables)
    for label, probability, row in zip(
        tables[0]["label"], tables[0]["probability"], tables[0]["probabilities"], strict=True
    ):
        assert sum(row) == pytest.approx(1)
        assert probability == max(row)
        assert label == ["aa", "bb", "cc"][row.index(max(row))]
    assert not data.exists()
    data.with_name("moved").rename(data)


def test_predictions_are_those_of_an_evaluation(run: Run, tmp_path: Path) -> None:
    checkpoint = run.layout.checkpoint("best")
    evaluate(checkpoint, split="test")

    predict_command([f"ckpt={checkpoint}", f"input={run.layout.run_dir.parent}/data/test.jsonl", "output=out.parquet"])

    one, other = predicted(run.layout.predictions), predicted(tmp_path / "out.parquet")
    assert one["prediction"] == other["label"]
    assert one["text"] == other["text"]
    for mine, theirs in zip(one["probabilities"], other["probabilities"], strict=True):
        assert mine == pytest.approx(theirs, abs=1e-5)


def test_rows_that_are_left_out_keep_the_others_numbers(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gaps.jsonl").write_text('{"body": "aa"}\n{"body": ""}\n{"body": "cc"}\n')
    arguments = [f"ckpt={run.layout.run_dir}", "input=gaps.jsonl", "task.data.columns.text=body"]

    with pytest.raises(DataError, match=r"^input: .*gaps\.jsonl line 2: field 'body' is empty"):
        predict_command(arguments)
    assert not (tmp_path / "gaps.predictions.parquet").exists()
    predict_command([*arguments, "managers.data.on_empty=drop"])

    assert predicted(tmp_path / "gaps.predictions.parquet")["row"] == [0, 2]


def test_what_cannot_be_predicted_is_refused_in_one_sentence(run: Run, tmp_path: Path) -> None:
    best = run.layout.checkpoint("best")
    (tmp_path / "wrong.csv").write_text("body\nhello\n")
    (tmp_path / "damaged.ckpt").write_bytes(best.read_bytes()[:-500] + b"x" * 500)
    state = load_checkpoint_file(best)
    save_checkpoint_file(tmp_path / "lm.ckpt", {**state, "run": state["run"] | {"labels": []}})
    refusals: dict[tuple[str, ...], tuple[type[Exception], str]] = {
        (f"ckpt={best}",): (ConfigError, "^input: not given; python predict.py ckpt=PATH input=PATH"),
        ("input=a.csv",): (ConfigError, "^ckpt: not given"),
        (f"ckpt={best}", "input=gone.csv"): (DataError, r"^input: .*gone\.csv does not exist"),
        (f"ckpt={best}", "input=wrong.csv"): (DataError, r"^input: .*wrong\.csv line 2: no field 'text'; fields: body"),
        (f"ckpt={best}", "input=wrong.csv", "output=no/such.parquet"): (ConfigError, "^output: there is no folder"),
        (f"ckpt={best}", "input=wrong.csv", "loader.bach_size=2"): (ConfigError, "^loader.bach_size: is not in the"),
        ("ckpt=damaged.ckpt", "input=wrong.csv"): (CheckpointError, "damaged.ckpt: "),
        ("ckpt=lm.ckpt", "input=wrong.csv"): (CheckpointError, "lm.ckpt: its model has no classes to predict"),
    }

    for arguments, (kind, text) in refusals.items():
        with pytest.raises(kind, match=text):
            predict_command(list(arguments))

    assert [path.name for path in tmp_path.glob("*.parquet*")] == []


def test_the_command_says_where_its_predictions_are(run: Run, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("aa\nbb\n")
    root = Path(__file__).resolve().parents[2]
    command = ["python", str(root / "predict.py"), f"ckpt={run.layout.run_dir}", "input=new.txt"]

    with running(command, output=tmp_path / "output", cwd=tmp_path) as tree:
        code = tree.wait(90)
        tree.assert_nothing_left()

    assert code == 0, tree.text
    assert tree.text.splitlines()[-1] == "2 predictions: new.predictions.parquet"
    assert not (tmp_path / "runs").exists()
