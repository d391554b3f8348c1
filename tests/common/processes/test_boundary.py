"""What crosses into another process is looked through, and what must not is named by its path."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from project.common.errors import ProcessBoundaryError
from project.common.processes.boundary import check_crossing, not_picklable


class Holder:
    """Plain but for what it holds."""

    def __init__(self, held: Any) -> None:
        self.held = held


class PicklesItself(Holder):
    """Says itself what crosses."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class BaseManager:
    """Named as ours, from where ours come."""


BaseManager.__module__ = "project.common.managers.base"
LOCAL = (lambda: lambda: 0)()


def test_plain_data_passes() -> None:
    check_crossing({"a": [1, 2.0, "b", b"c", None, (True,), {1, 2}], "path": Path("x"), "f": len}, name="config")


@pytest.mark.case("17")
@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, LOCAL]}, "config['a'][1]"),
        (OrderedDict(a=(LOCAL,)), "config['a'][0]"),
        ({"h": Holder(Holder([LOCAL]))}, "config['h'].held.held[0]"),
    ],
)
def test_names_the_path_in_the_structure(value: Any, path: str) -> None:
    with pytest.raises(ProcessBoundaryError) as caught:
        check_crossing(value, name="config")

    assert str(caught.value).startswith(f"{path}: a lambda cannot cross")


def test_arguments_are_named_as_parameters() -> None:
    with pytest.raises(ProcessBoundaryError, match=r"^data\['x'\]: a lambda"):
        check_crossing({"data": {"x": LOCAL}}, name="")


def test_a_circle_ends() -> None:
    circle: list[Any] = []
    circle.append(circle)

    check_crossing(circle, name="config")


def test_what_pickles_itself_is_not_looked_into() -> None:
    check_crossing(PicklesItself(LOCAL), name="config")


def test_a_manager_is_refused_with_the_call_that_mends_it() -> None:
    with pytest.raises(
        ProcessBoundaryError, match="BaseManager belongs to the process that built it; call ensure_process"
    ):
        check_crossing({"m": BaseManager()}, name="config")


def shared_tensor() -> torch.Tensor:
    return torch.ones(2).share_memory_()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (shared_tensor, "a shared tensor would tie the processes together"),
        (lambda: torch.ones(2, device="meta"), r"a tensor on meta cannot cross; use to_cpu\(\) first"),
        (lambda: torch.nn.Linear(1, 1), "a model is never handed over"),
    ],
    ids=["shared", "on a device", "model"],
)
def test_tensors_that_must_not_cross_are_refused_with_their_path(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(ProcessBoundaryError, match=rf"^config\['a'\]\[0\]: {why}"):
        check_crossing({"a": [make()]}, name="config")

    check_crossing({"a": [torch.ones(2)]}, name="config")


@pytest.mark.case("17")
def test_a_pickling_error_is_told_with_the_deepest_path() -> None:
    error = not_picklable({"good": 1, "data": [Holder({"lock": threading.Lock()})]}, TypeError("cannot pickle"))

    assert str(error) == ("data[0].held['lock']: cannot be pickled (cannot pickle); give plain data and build it there")
