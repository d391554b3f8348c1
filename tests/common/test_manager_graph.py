"""The graph is read from constructor signatures."""

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from project.common.manager_graph import ManagerGraph
from project.common.processes.identity import Role
from project.common.whitelist import ALLOW_VARIABLE
from tests.helpers import managers as doubles
from tests.helpers.managers import config_of

if TYPE_CHECKING:
    from somewhere import OtherManager, TensorManager  # type: ignore[import-not-found]


class _Any:
    roles: ClassVar[frozenset[Role]] = frozenset({Role.RANK})


class Paper(_Any):
    def __init__(self, *, scissors: Any) -> None: ...


class Scissors(_Any):
    def __init__(self, *, stone: Any) -> None: ...


class Stone(_Any):
    def __init__(self, *, paper: Any) -> None: ...


class Annotated(_Any):
    def __init__(self, *, tensor: "TensorManager", other: "OtherManager | None" = None, annotated: int = 1) -> None: ...


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_VARIABLE, f"{doubles.ALLOWED},{__name__}.*")


def test_needs_and_wishes_are_told_apart() -> None:
    nodes = ManagerGraph.read(config_of("lamp", "roof", "house", "ground")).nodes

    assert (nodes["roof"].needs, nodes["roof"].wishes) == (("house", "ground"), ())
    assert (nodes["lamp"].needs, nodes["lamp"].wishes) == ((), ("roof",))


def test_a_circle_of_three_is_read_in_the_order_of_needing() -> None:
    names = ("stone", "scissors", "paper")
    config = {"managers": {name: {"_target_": f"{__name__}.{name.capitalize()}"} for name in names}}

    assert ManagerGraph.read(config).problems == [
        "managers need each other in a circle: paper -> scissors -> stone -> paper"
    ]


def test_a_parameter_annotated_as_manager_is_a_need_even_if_there_is_none() -> None:
    config = {"managers": {"annotated": {"_target_": f"{__name__}.Annotated", "annotated": 2}}}

    graph = ManagerGraph.read(config)

    assert graph.problems == [
        "managers.annotated: needs 'tensor', which is not configured; add managers/tensor to the defaults"
    ]
    assert graph.nodes["annotated"].wishes == ("other",)


def test_a_manager_in_the_configuration_of_another_is_refused() -> None:
    config = {"managers": {"annotated": {"_target_": f"{__name__}.Annotated", "tensor": 3}}}

    assert ManagerGraph.read(config).problems == [
        "managers.annotated.tensor: is a manager, which the container gives; remove the key"
    ]


def test_a_manager_that_is_null_does_not_exist() -> None:
    config = config_of("lamp", "ground")
    config["managers"]["roof"] = None

    graph = ManagerGraph.read(config)

    assert graph.problems == []
    assert set(graph.nodes) == {"lamp", "ground"}


def test_a_role_has_its_own_managers_in_the_order_of_building() -> None:
    graph = ManagerGraph.read(config_of("roof", "house", "ground"))

    assert list(graph.for_role(Role.WORKER)) == ["ground", "house"]
    assert list(graph.for_role(Role.MAIN)) == ["ground"]
