"""The table of field cases and the tests that carry their numbers say the same."""

import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent
ROW = re.compile(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
MARK = re.compile(r"^@pytest\.mark\.case\(([^)]*)\)\n(?:(?:@| |\)|\]).*\n)*def test_", re.MULTILINE)


def table() -> dict[str, set[str]]:
    rows = ROW.findall((TESTS / "FIELD_CASES.md").read_text())
    assert len(rows) == len(dict(rows)), "a case stands there twice"
    return {case: set(files.split()) for case, files in rows}


def marks() -> dict[str, set[str]]:
    found = defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        for cases in MARK.findall(path.read_text()):
            for case in re.findall(r'"(\w+)"', cases):
                found[case].add(path.relative_to(TESTS).as_posix())
    return dict(found)


def test_every_listed_case_has_its_tests_and_every_test_its_case() -> None:
    assert len(table()) >= 31
    assert marks() == table()


def test_a_case_stands_before_nothing_but_a_test() -> None:
    written = sum(len(re.findall(r"^@pytest\.mark\.case\(", p.read_text(), re.MULTILINE)) for p in TESTS.rglob("*.py"))
    read = sum(len(MARK.findall(path.read_text())) for path in TESTS.rglob("test_*.py"))

    assert written == read
