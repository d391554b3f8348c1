"""Of two overrides with one key the later one counts; what Hydra applies one after the other stays."""

import pytest

from project.common.errors import ConfigError
from project.sweeps.search.given_overrides import bare_name, given_overrides


def given(params: dict[str, object], *arguments: str) -> list[str | None]:
    return [override.input_line for override in given_overrides(params, arguments, None)]


@pytest.mark.parametrize(
    ("params", "arguments", "expected"),
    [
        ({"x": "choice(1,2)"}, ["x=5"], ["x=5"]),
        ({"x": "5"}, ["x=choice(1,2)"], ["x=choice(1,2)"]),
        ({"x": "1"}, ["x=2"], ["x=2"]),
        ({"+x": "choice(1,2)"}, ["x=5"], ["+x=5"]),
        ({"++x": "choice(1,2)"}, ["x=5"], ["++x=5"]),
        ({"x": "choice(1,2)"}, ["+x=5"], ["+x=5"]),
        ({"+x": "5"}, ["x=choice(1,2)"], ["+x=choice(1,2)"]),
        ({"x": "choice(1,2)"}, ["~x"], ["~x"]),
        ({"+x": "choice(1,2)"}, ["~x"], []),
        ({"++x": "choice(1,2)"}, ["~x"], ["~x"]),
        ({}, ["~x", "+x=choice(1,2)"], ["~x", "+x=choice(1,2)"]),
        ({}, ["x={a:1}", "x={b:2}"], ["x={a:1}", "x={b:2}"]),
        ({"x": "choice(1,2)"}, ["x={b:2}"], ["x={b:2}"]),
        ({"x": 1, "y": None, "z": [1, "a b"]}, [], ["x=1", "y=null", "z=[1,'a b']"]),
        ({"model": "a,b"}, ["model@other=c"], ["model=a,b", "model@other=c"]),
    ],
)
def test_the_later_one_counts(params: dict[str, object], arguments: list[str], expected: list[str]) -> None:
    assert given(params, *arguments) == expected


def test_a_sign_is_taken_into_the_key() -> None:
    (override,) = given_overrides({"+x": "choice(1,2)"}, ["x=choice(3,4)"], None)

    assert override.get_key_element() == "+x"


@pytest.mark.filterwarnings("ignore:extend_list")
def test_a_list_that_is_searched_cannot_be_extended() -> None:
    with pytest.raises(ConfigError, match=r"^x: is searched \('x=choice\(\[1\],\[2\]\)'\) and extended"):
        given({}, "x=choice([1],[2])", "x=extend_list(3)")


def test_what_cannot_be_read_is_named_with_its_place() -> None:
    with pytest.raises(ConfigError) as raised:
        given({"lr": "interval(0.1"}, "x=choice()", "y=1")

    first, second = raised.value.problems
    assert first.startswith("hydra.sweeper.params.lr: 'lr=interval(0.1' is no override that Hydra can read: ")
    assert second.startswith("override 1: 'x=choice()' is no override that Hydra can read: ")
    assert "empty choice is not legal" in second


@pytest.mark.parametrize(("text", "name"), [("+x=1", "x"), ("~x", "x"), ("++a.b=+c", "a.b"), ("g@p=1", "g@p")])
def test_the_bare_name_has_no_sign(text: str, name: str) -> None:
    assert bare_name(text) == name
