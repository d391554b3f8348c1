"""Numbers, times and parameters in few characters."""

import math

import pytest

from project.common.wording import about, clock, number, one_line, params_text, short_names


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0:00"), (67, "1:07"), (3600, "1:00:00"), (90061, "1 d 1:01:01"), (-1, "0:00"), (math.inf, "")],
)
def test_time_that_has_passed(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (80, "1 min"), (3600, "1 h"), (11100, "3 h 5 min"), (86400, "1 d"), (97200, "1 d 3 h")],
)
def test_time_to_come(seconds: float, text: str) -> None:
    assert about(seconds) == text


def test_a_number_has_five_digits_and_none_is_nothing() -> None:
    assert [number(value) for value in (0.123456, 1.0, math.nan, None)] == ["0.12346", "1", "nan", ""]


def test_keys_are_short_but_tell_parameters_apart() -> None:
    assert short_names(["task.model.lr", "+task.data.name", "task.model.name", "name"]) == {
        "task.model.lr": "lr",
        "+task.data.name": "data.name",
        "task.model.name": "model.name",
        "name": "name",
    }


def test_parameters_are_short_in_one_line_and_without_secrets() -> None:
    params = {"lr": 0.000123456, "layers": [1, 2], "x": None, "a.text": "one\ntwo", "f": "a" * 99, "db.password": "p"}

    text = params_text(params)

    assert text.startswith("lr=0.0001235 layers=[1, 2] x=null text=one two f=aaaaaaaaaaaa…aaaaaaaaaaa ")
    assert text.endswith("password=***")


def test_a_line_cannot_move_the_cursor() -> None:
    assert one_line("a\x1b[2J\n\tb  c") == "a�[2J b c"
