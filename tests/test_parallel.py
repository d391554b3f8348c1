"""The suite in parts: none is left out, none is run twice, and the sum says what all of them said."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import parallel
from tests.helpers import parts


def _item(path: str, *, slow: bool = False) -> Any:
    return SimpleNamespace(path=path, get_closest_marker=lambda name: slow or None)


def test_every_item_is_in_exactly_one_part_and_files_stay_whole() -> None:
    items = [_item(f"file{n % 7}", slow=n % 3 == 0) for n in range(100)]
    dealt = [parts.chosen(items, f"{part}/3") for part in (1, 2, 3)]

    assert sorted(map(id, (item for part in dealt for item in part))) == sorted(map(id, items))
    for path in {item.path for item in items}:
        assert sum(any(item.path == path for item in part) for part in dealt) == 1


@pytest.mark.parametrize("part", ["0/2", "3/2", "x", "1/", "1"])
def test_another_word_is_refused(part: str) -> None:
    with pytest.raises(ValueError, match="--part"):
        parts.chosen([], part)


def test_the_sum_has_every_count() -> None:
    one = "...\n==== 1 failed, 20 passed, 3 skipped, 9 deselected, 2 warnings in 3.00s ====\n"
    other = "...\n==== 9 passed, 23 deselected, 1 error in 61.00s (0:01:01) ====\n"

    assert parallel.closing_line([one, other], 62.0).strip("= ") == (
        "1 error, 1 failed, 29 passed, 3 skipped, 2 warning in 62.00s (2 sessions)"
    )


def test_a_part_that_fails_fails_the_whole(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import pytest_addoption, pytest_collection_modifyitems\n"
    )
    (tmp_path / "test_good.py").write_text("def test_it(): pass\n")
    (tmp_path / "test_bad.py").write_text("def test_it(): assert False\n")

    code = parallel.main(["2", str(tmp_path), "-p", "no:cacheprovider", f"--rootdir={tmp_path}"])

    assert code == 1
    assert "1 failed, 1 passed in " in capfd.readouterr().out.splitlines()[-1]


def test_a_session_sees_no_shared_memory_of_others() -> None:
    prefix = parallel.own_shared_memory()
    name = Path("/dev/shm", f"seen-{os.getpid()}")
    name.touch()
    try:
        seen = subprocess.run([*prefix, "ls", "/dev/shm"], capture_output=True, text=True, check=True).stdout
    finally:
        name.unlink()

    assert (name.name in seen) == (prefix == [])
