"""A configuration is refused when what it meets outside cannot be as it says."""

import pytest

from project.common.config_surroundings import check_surroundings, name_problem


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a:b", "a ", " a", "a.", "x" * 300, "a\0b"])
def test_names_that_no_folder_can_have_are_refused(name: str) -> None:
    assert (name_problem(name) or "").endswith("cannot be a folder's name; use letters, digits, '-', '_' and '.'")


@pytest.mark.parametrize("name", ["a", "a b", "a-b_c.d", "名前"])
def test_other_names_are_taken(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    ("value", "is_refused"), [("abc", True), ("0", True), ("-1", True), ("2", False), ("4,2", False)]
)
def test_a_number_of_threads_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str, is_refused: bool
) -> None:
    """It was passed over without a word."""
    monkeypatch.setenv("OMP_NUM_THREADS", value)

    problems = list(check_surroundings({"processes": {"threads": "auto"}}))

    assert [problem.startswith("OMP_NUM_THREADS: ") for problem in problems] == [True] * is_refused
    assert not list(check_surroundings({"processes": {"threads": 2}}))
