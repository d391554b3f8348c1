"""Managers for tests of data, tokenizers and batches, and what runs in their child processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from project.common.data.rows import ArrowRows
from project.common.data.samplers import BatchPlan, EpochBatchSampler
from project.common.managers.data import DataManager
from project.common.managers.directory import DirectoryManager
from project.common.managers.tokenizer import TokenizerManager
from project.common.processes.identity import Identity, Role, set_identity
from project.common.whitelist import ALLOW_VARIABLE

TRAIN = {"_target_": "project.tasks.tokenizers.train_wordpiece", "vocab_size": 120, "min_frequency": 1}
SPLIT = {
    "_target_": "project.tasks.splits.split_by_group",
    "fractions": {"train": 0.6, "val": 0.2, "test": 0.2},
    "seed": 1,
}
HELPERS = "tests.helpers.data"
DEADLINE_S = 100


def directory_manager(folder: Path) -> DirectoryManager:
    return DirectoryManager(name="test", runs_dir=str(folder / "runs"), cache_dir=str(folder / "cache"))


def tokenizer_manager(folder: Path, **settings: Any) -> TokenizerManager:
    return TokenizerManager(directory=directory_manager(folder), **({"train": TRAIN} | settings))


def data_manager(folder: Path, **settings: Any) -> DataManager:
    defaults: dict[str, Any] = {"tokenizer": tokenizer_manager(folder), "split": SPLIT, "max_length": 16}
    return DataManager(directory=directory_manager(folder), **(defaults | settings))


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
    return str(path)


def word_rows(n_rows: int = 40) -> list[dict[str, Any]]:
    colours = ("red", "green", "blue")
    return [{"text": f"{colours[i % 3]} apple {in_letters(i)}", "label": "ab"[i % 2]} for i in range(n_rows)]


def in_letters(number: int) -> str:
    """A number that a splitter does not take for the same as any other."""
    return str(number).translate(str.maketrans("0123456789", "abcdefghij"))


def noted_source(*, note: str, wait_s: float = 0.0) -> list[dict[str, Any]]:
    """Notes each call in a file, and takes its time."""
    with Path(note).open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(wait_s)
    return word_rows()


def count_texts(texts: Iterable[str]) -> list[int]:
    return [len(text) for text in texts]


def no_rows() -> list[dict[str, Any]]:
    return []


def prepare(folder: str, settings: Mapping[str, Any], role: str = "rank") -> None:
    """In a child: prepares the data and prints what it is."""
    os.environ[ALLOW_VARIABLE] = f"{HELPERS}.*"
    set_identity(Identity(role=Role(role), rank=0))
    data = data_manager(Path(folder), **settings)
    first = data.rows("train")[0]
    rows = {split: [[int(i) for i in row["input_ids"]] for row in _each(data.rows(split))] for split in data.splits}
    print(json.dumps({"fingerprint": data.fingerprint, "labels": data.labels, "first": first["row"], "rows": rows}))


def _each(rows: ArrowRows) -> list[dict[str, Any]]:
    return [rows[index] for index in range(len(rows))]


def start_preparing(folder: Path, settings: Mapping[str, Any], **environment: str) -> "subprocess.Popen[str]":
    code = f"import sys, json; from {HELPERS} import prepare; prepare(sys.argv[1], json.loads(sys.argv[2]))"
    return start(code, str(folder), json.dumps(settings), **environment)


def start(code: str, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    """Starts Python on `code`, with the repository's root as its place for imports."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | environment,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result_of(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    return out


def read_all_rows(path: str) -> None:
    """In a child: reads every row, then prints the private memory in bytes that this has cost."""
    rows = ArrowRows(path)
    _ = rows[0]
    before = _anonymous_bytes()
    total = sum(int(rows[index]["input_ids"][0]) for index in range(len(rows)))
    print(json.dumps({"private": _anonymous_bytes() - before, "sum": total}))


def _anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def shift_by_draw(row: dict[str, Any], random: Any) -> dict[str, Any]:
    return row | {"draw": int(random.integers(1_000_000))}


def load_with_workers(path: str) -> None:
    """In a child: reads three epochs, the last from its middle, by two workers that live on; prints both sides."""
    from torch.utils.data import DataLoader

    rows = ArrowRows(path, transform=shift_by_draw)
    sampler = EpochBatchSampler([1] * len(rows), plan=BatchPlan(batch_size=4))
    loader: DataLoader[Any] = DataLoader(
        rows,  # type: ignore[arg-type]
        batch_sampler=sampler,
        num_workers=2,
        persistent_workers=True,
        collate_fn=as_they_are,
        multiprocessing_context="forkserver",
    )
    expected, seen = [], []
    for epoch, start_at in ((0, 0), (1, 0), (1, 3)):
        sampler.set_position(epoch, start_at)
        expected.append([[rows[key]["draw"] for key in batch] for batch in sampler])
        seen.append([[row["draw"] for row in batch] for batch in loader])
    print(json.dumps({"expected": expected, "seen": seen}))


def as_they_are(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows


def encode_in_fork(folder: str) -> None:
    """In a child: uses the tokenizer with threads, forks, and tokenises in the fork by a tokenizer of its own."""
    set_identity(Identity(role=Role.RANK, rank=0))
    manager = tokenizer_manager(Path(folder))
    texts = [row["text"] for row in word_rows(400)]
    manager.prepare(lambda: texts, fingerprint="x")
    expected = manager.encode(texts, max_length=8)
    backend = manager.tokenizer.backend_tokenizer
    pid = os.fork()
    if pid == 0:
        # The user's own fork: no manager is built, the library's object is used as it was inherited.
        is_same = [encoding.ids[:7] for encoding in backend.encode_batch(texts)] == [ids[:7] for ids in expected]
        os._exit(0 if is_same else 1)
    deadline = time.monotonic() + 30
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError("the fork hangs")
        time.sleep(0.01)
    print(os.waitstatus_to_exitcode(ended[1]))
