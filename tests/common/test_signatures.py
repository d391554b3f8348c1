"""Whether plain values can be meant by an annotation, and whether a node fits what it would call."""

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union

import pytest

from project.common.signatures import accepts, describe, misfits, suggest

if TYPE_CHECKING:
    from somewhere import Unknown  # type: ignore[import-not-found]


class Colour(Enum):
    RED = "red"


class Device:
    """Stands for a class that no plain value can be."""


def paint(*, colour: str, layers: int = 1, thickness: float = 0.5, where: "Unknown" = None, **rest: Any) -> None:
    """Has one annotation that only a type checker can read."""


def plain(a: int, b: int | None = None) -> None: ...


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 1),
        (float, 1),
        (float, 0.5),
        (str, "a"),
        (bool, True),
        (Union[int, None], None),  # noqa: UP007 - what older libraries write
        (int | None, 3),
        (Literal["a", "b"], "b"),
        (list[str], ["a"]),
        (Sequence[float], [1, 0.5]),
        (tuple[int, str], [1, "a"]),
        (dict[str, int], {"a": 1}),
        (Mapping[str, Any], {}),
        (Path, "here"),
        (str | Path, "here"),
        (int | Colour, "red"),
        (int | Path, "here"),
        (Device, "cuda:0"),
        (Device | None, 3),
        (Any, object()),
    ],
)
def test_what_can_be_meant_is_accepted(annotation: Any, value: Any) -> None:
    assert accepts(annotation, value)


@pytest.mark.parametrize(
    ("annotation", "value", "wanted"),
    [
        (int, "1", "a whole number"),
        (int, 1.5, "a whole number"),
        (int, True, "a whole number"),
        (float, "fast", "a number"),
        (str, 1, "text"),
        (bool, 1, "true or false"),
        (int, None, "a whole number"),
        (int | None, "x", "a whole number or null"),
        (Literal["a", "b"], "c", "a or b"),
        (list[str], "a", "a list of text"),
        (list[int], ["a"], "a list of whole numbers"),
        (list[str], [1], "a list of text"),
        (dict[str, int], ["a"], "keys with values"),
        (dict[str, int], {"a": "b"}, "keys with values"),
        (float | Device, "fast", "a number"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_said_in_words(annotation: Any, value: Any, wanted: str) -> None:
    assert not accepts(annotation, value)
    assert describe(annotation) == wanted


def test_each_misfit_is_a_line_of_its_own() -> None:
    assert misfits("x", plain, {"c": 1, "b": "two"}, given_later=()) == [
        "x.c: plain takes no 'c'; there are a, b",
        "x.a: missing; plain needs it",
        "x.b: 'two' does not fit; use a whole number or null",
    ]


@pytest.mark.parametrize("given_later", [None, ["a"]])
def test_what_code_adds_is_not_missing(given_later: list[str] | None) -> None:
    assert misfits("x", plain, {}, given_later=given_later) == []


def test_a_partial_may_lack_arguments() -> None:
    assert misfits("x", plain, {"_target_": "y", "_partial_": True}, given_later=()) == []


def test_annotations_that_only_a_type_checker_can_read_decide_nothing() -> None:
    assert misfits("x", paint, {"colour": "red", "where": 3, "more": 1}, given_later=()) == []
    assert misfits("x", paint, {"colour": 3, "where": 3}, given_later=()) == ["x.colour: 3 does not fit; use text"]


def test_a_nested_node_becomes_an_object_and_a_missing_value_is_reported_elsewhere() -> None:
    assert misfits("x", plain, {"a": {"_target_": "y"}, "b": "???"}, given_later=()) == []


def test_a_suggestion_names_what_there_is() -> None:
    assert suggest("modle", ["model", "data"]) == "did you mean 'model'? there are data, model"
    assert suggest("zzz", ["model"]) == "there is model"
    assert suggest("zzz", []) == "there are none at all"
