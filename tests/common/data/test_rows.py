"""Rows in mapped Arrow files."""

import json
import multiprocessing
import pickle
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from project.common.data.rows import ROWS_PER_CHUNK, ArrowRows, write_rows
from project.common.processes import linux
from tests.helpers.data import HELPERS, result_of, shift_by_draw, start
from tests.helpers.sharing import read_all

SCHEMA = pa.schema({"input_ids": pa.list_(pa.int32()), "row": pa.int64(), "text": pa.string()})


def make(path: Path, *, n_rows: int, n_tokens: int = 3) -> str:
    rows = ({"input_ids": [i] * (n_tokens + i % 2), "row": i, "text": f"text {i}"} for i in range(n_rows))
    assert write_rows(path, rows, schema=SCHEMA) == n_rows
    return str(path)


def test_reads_rows_across_chunks_by_number_or_epoch_and_number(tmp_path: Path) -> None:
    n_rows = 2 * ROWS_PER_CHUNK + 10
    rows = ArrowRows(make(tmp_path / "a.arrow", n_rows=n_rows))

    assert len(rows) == n_rows
    for index in (0, 1, ROWS_PER_CHUNK - 1, ROWS_PER_CHUNK, n_rows - 1):
        assert rows[index]["row"] == rows[(7, index)]["row"] == index
        assert rows[index]["input_ids"].tolist() == [index] * (3 + index % 2)
    assert [row["row"] for row in rows.__getitems__([(0, 5), 2])] == [5, 2]
    assert "text" not in rows[0]
    assert rows.texts()[:2] == ["text 0", "text 1"]
    assert rows.column("row").tolist() == list(range(n_rows))
    with pytest.raises(IndexError, match=f"row {n_rows} of {n_rows}"):
        _ = rows[n_rows]


def test_pickled_it_is_a_path_and_not_rows(tmp_path: Path) -> None:
    rows = ArrowRows(make(tmp_path / "a.arrow", n_rows=1000))
    _ = rows[0]
    data = pickle.dumps(rows)

    assert len(data) < 1000
    assert pickle.loads(data)[999]["row"] == 999


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processes_share_the_file_without_copying_it(tmp_path: Path) -> None:
    """Rows held as Python lists end up once in every worker, because counting references writes to their pages."""
    path = make(tmp_path / "a.arrow", n_rows=40_000, n_tokens=250)
    size = Path(path).stat().st_size
    code = f"import sys; from {HELPERS} import read_all_rows; read_all_rows(sys.argv[1])"
    children = [start(code, path) for _ in range(2)]
    found = [json.loads(result_of(child)) for child in children]

    assert size > 35e6
    assert all(one["private"] < 0.1 * size for one in found)
    assert found[0]["sum"] == found[1]["sum"] == sum(range(40_000))


def test_what_a_transform_draws_follows_from_seed_epoch_and_row(tmp_path: Path) -> None:
    path = make(tmp_path / "a.arrow", n_rows=10)
    rows = ArrowRows(path, transform=shift_by_draw, seed=1)
    draw = rows[(2, 3)]["draw"]

    assert pickle.loads(pickle.dumps(rows))[(2, 3)]["draw"] == draw
    others = {rows[(1, 3)]["draw"], rows[(2, 4)]["draw"], ArrowRows(path, transform=shift_by_draw)[(2, 3)]["draw"]}
    assert draw not in others
    assert len(others) == 3


def test_rows_cannot_be_written_to(tmp_path: Path) -> None:
    rows = ArrowRows(make(tmp_path / "a.arrow", n_rows=2))

    with pytest.raises(ValueError, match="read-only"):
        rows[0]["input_ids"][0] = 5


@pytest.mark.slow
def test_workers_that_live_on_get_each_epochs_rows(tmp_path: Path) -> None:
    path = make(tmp_path / "a.arrow", n_rows=30)
    child = start(f"import sys; from {HELPERS} import load_with_workers; load_with_workers(sys.argv[1])", path)
    found = json.loads(result_of(child))

    assert found["seen"] == found["expected"]
    assert found["seen"][0] != found["seen"][1]
    assert found["seen"][2] == found["seen"][1][3:]


@pytest.mark.slow
@pytest.mark.skipif(not linux.IS_LINUX, reason="sizes of shared pages are Linux's")
@pytest.mark.case("42")
def test_a_million_strings_lie_in_memory_once_however_many_processes_read_them(tmp_path: Path) -> None:
    schema = pa.schema([("text", pa.string())])
    write_rows(tmp_path / "rows.arrow", ({"text": f"string number {i}"} for i in range(1_000_000)), schema=schema)
    rows = ArrowRows(tmp_path / "rows.arrow", columns=["text"])
    context = multiprocessing.get_context("spawn")
    links, children = [], []
    for _ in range(3):
        here, there = context.Pipe()
        children.append(context.Process(target=read_all, args=(rows, there)))
        children[-1].start()
        there.close()
        links.append(here)
    assert [link.poll(120) and link.recv() for link in links] == ["read"] * len(links)
    for link in links:
        link.send("measure")
    found = [link.recv() for link in links]
    for link, child in zip(links, children, strict=True):
        link.send("end")
        child.join(30)
        link.close()
        child.close()

    resident = max(size for size, _, _ in found)
    assert resident > 15, "each has read the whole file"
    assert sum(share for _, share, _ in found) == pytest.approx(resident, rel=0.05), "and there is one copy of it"
    assert max(grown for _, _, grown in found) < resident, "no process has a list of its own"
