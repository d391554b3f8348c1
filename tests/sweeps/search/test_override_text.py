"""Values become override texts that Hydra's parser reads back exactly."""

import math
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from project.sweeps.search.override_text import as_text, literal
from project.sweeps.search.search_space import read_search_space
from tests.helpers.search_spaces import choices, job

ODD = st.sampled_from([*"\\'\"${},[]:= \t\n\r()ab1", "${y}", "\\${y}", "null", "???"])
STRINGS = st.one_of(st.text(), st.lists(ODD).map("".join))


def read(text: str) -> Any:
    return OverridesParser.create().parse_override(f"x={text}").value()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1, "1"),
        (-0.0, "-0.0"),
        (1e-5, "1e-05"),
        (1e300, "1e+300"),
        (-math.inf, "-inf"),
        ("word-2", "word-2"),
        ("", "''"),
        ("1", "'1'"),
        ("True", "'True'"),
        ("nan", "'nan'"),
        ("NULL", "'NULL'"),
        ("a,b", "'a,b'"),
        ("it's", r"'it\'s'"),
        ("ends in \\", r"'ends in \\'"),
        ("two\nlines", "'two\nlines'"),
        ("${y}", "'${y}'"),
        ([1, "1", None, [True, 1.0]], "[1,'1',null,[true,1.0]]"),
        ({"a": 1, "b b": [{"c": "true"}], 1: "é"}, r"{a:1,b\ b:[{c:'true'}],1:'é'}"),
        ([], "[]"),
        ({}, "{}"),
    ],
)
def test_a_value_has_one_text_which_reads_back_with_its_type(value: Any, text: str) -> None:
    assert as_text(value) == text
    assert repr(read(text)) == repr(value)


def test_a_number_of_numpy_is_a_number() -> None:
    numpy = pytest.importorskip("numpy")

    assert as_text(numpy.float64(0.1)) == "0.1"


def test_what_no_override_can_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="neither a string, a number"):
        as_text(object())


@given(STRINGS)
def test_any_string_reads_back(text: str) -> None:
    assert read(as_text(text)) == text


@pytest.mark.case("23")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STRINGS.filter(lambda text: text != "???"))
@example("${y}")
@example("\\${y}")
@example("\\\\${y}\\")
@example("it's ${")
def test_any_string_becomes_a_choice_and_arrives_in_the_job(composing: None, text: str) -> None:
    space = read_search_space({}, [f"name=choice({as_text(literal(text))},plain)"])

    (params,) = ({"name": choice} for choice in choices(space, "name") if choice != "plain" or text == "plain")
    assert job(space.overrides(params))["name"] == text
