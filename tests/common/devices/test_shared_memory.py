"""Ways of sharing tensors, and warnings before space or files run out."""

import json
import multiprocessing
from pathlib import Path

import pytest

from project.common.devices import shared_memory
from project.common.devices.shared_memory import choose_strategy, open_files_problem, shared_memory_problem
from project.common.errors import ConfigError
from tests.helpers.tensors import share_under_a_limit

BOTH = {"file_descriptor", "file_system"}


@pytest.mark.parametrize(
    ("wish", "file_limit", "possible", "expected"),
    [
        ("auto", 65536, BOTH, "file_descriptor"),
        ("auto", 1024, BOTH, "file_system"),
        ("auto", 65536, {"file_system"}, "file_system"),
        ("file_descriptor", 96, BOTH, "file_descriptor"),
    ],
)
def test_chooses_by_the_limit_of_open_files(wish: str, file_limit: int, possible: set[str], expected: str) -> None:
    strategy, reason = choose_strategy(wish, file_limit=file_limit, possible=possible)

    assert strategy == expected
    assert reason


def test_refuses_strategies_that_are_none() -> None:
    with pytest.raises(ConfigError, match="'mmap' is unknown; use auto, file_descriptor or file_system"):
        choose_strategy("mmap", file_limit=1024, possible=BOTH)
    with pytest.raises(ConfigError, match="'file_descriptor' is not possible on this system; use auto"):
        choose_strategy("file_descriptor", file_limit=1024, possible={"file_system"})


@pytest.mark.case("40")
@pytest.mark.slow
@pytest.mark.parametrize(("soft", "hard", "strategy"), [(96, 8192, "file_descriptor"), (96, 128, "file_system")])
def test_raises_the_limit_as_far_as_allowed_and_tells_torch(
    tmp_path: Path, soft: int, hard: int, strategy: str
) -> None:
    report = tmp_path / "report"
    process = multiprocessing.get_context("spawn").Process(target=share_under_a_limit, args=(soft, hard, report))
    process.start()
    process.join(60)

    assert json.loads(report.read_text()) == {"strategy": strategy, "set": strategy, "limit": hard}


@pytest.mark.case("39")
def test_warns_with_numbers_when_batches_will_not_fit() -> None:
    problem = shared_memory_problem(batch_mb=4, prefetch=4, workers=2, ranks=2, free_mb=64)

    assert problem is not None
    assert "64 MB are free, batches under way may need 72 MB (4.0 MB x 18: prefetch 4 x 2 workers x 2 ranks" in problem
    assert "loader.num_workers" in problem


def test_is_silent_when_batches_fit_or_none_travel() -> None:
    assert shared_memory_problem(batch_mb=4, prefetch=4, workers=2, ranks=2, free_mb=128) is None
    assert shared_memory_problem(batch_mb=4, prefetch=4, workers=0, ranks=2, free_mb=0) is None


@pytest.mark.case("40")
def test_warns_before_the_open_files_run_out() -> None:
    assert open_files_problem(n_open=85, file_limit=96) is None
    assert "90 of 96 (ulimit -n)" in (open_files_problem(n_open=90, file_limit=96) or "")


def test_counts_a_file_that_was_opened(tmp_path: Path) -> None:
    before = shared_memory.n_open_files()
    with (tmp_path / "file").open("w"):
        now = shared_memory.n_open_files()

    assert before is not None
    assert now == before + 1


def test_says_nothing_of_shared_memory_where_there_is_none(tmp_path: Path) -> None:
    assert shared_memory.shm_mb(tmp_path / "missing") is None
