"""The container builds what is needed, once, and closes it in reverse."""

import itertools
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from project.common.containers import Container
from project.common.errors import ConfigError, NotInitializedError, ProcessBoundaryError
from project.common.processes.identity import Identity, Role
from project.common.processes.stop import StopRequested
from project.common.whitelist import ALLOW_VARIABLE
from tests.helpers import managers as doubles
from tests.helpers.managers import config_of

RANK = Identity(role=Role.RANK, rank=0)
WORKER = Identity(role=Role.WORKER, rank=0, worker=1)


@pytest.fixture(autouse=True)
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.setenv(ALLOW_VARIABLE, doubles.ALLOWED)
    doubles.events.clear()
    doubles.release.clear()
    yield doubles.events
    doubles.release.set()


def make(*names: str, identity: Identity = RANK, **settings: Any) -> Container:
    config = config_of(*names, **settings)
    config["processes"] = {"close_timeout_s": 0.2}
    return Container(config, identity=identity)


def test_builds_nothing_before_it_is_asked(events: list[str]) -> None:
    container = make("roof", "house", "ground")

    assert container.built() == ()
    assert events == []


def test_builds_what_a_manager_needs_before_it(events: list[str]) -> None:
    make("roof", "house", "ground").get("roof")

    assert events == ["build ground", "build house", "build roof"]


def test_gives_the_same_instances_to_all(events: list[str]) -> None:
    container = make("roof", "house", "ground")
    container.build_all()

    assert container.get("roof").house is container.get("house")
    assert container.get("roof").ground is container.get("house").ground
    assert len(events) == 3


@pytest.mark.parametrize("asked", list(itertools.permutations(["lamp", "roof", "house", "ground"])))
def test_closes_a_manager_before_what_it_needs_in_whatever_order_they_were_asked_for(
    asked: tuple[str, ...], events: list[str]
) -> None:
    container = make("lamp", "roof", "house", "ground")
    for name in asked:
        container.get(name)

    container.close()

    assert events[4:] == ["close lamp", "close roof", "close house", "close ground"]


def test_closes_only_what_was_built_and_only_once(events: list[str]) -> None:
    container = make("roof", "house", "ground")
    container.get("house")

    container.close()
    container.close()

    assert events == ["build ground", "build house", "close house", "close ground"]


def test_gives_arguments_and_nested_nodes_as_plain_data() -> None:
    recipe = {"_target_": "torch.nn.Linear", "in_features": 3}
    house = make("house", "ground", house={"colour": "red", "rooms": ["hall"], "garden": recipe}).get("house")

    assert (house.colour, house.rooms, house.garden) == ("red", ["hall"], recipe)
    assert (type(house.rooms), type(house.garden)) == (list, dict)


def test_nodes_below_are_built_first_if_the_manager_asks_for_it() -> None:
    garden = {"bench": doubles.node("ground", depth=7)}
    house = make("house", "ground", house={"garden": garden, "_recursive_": True}).get("house")

    assert house.garden["bench"].depth == 7


def test_a_manager_cannot_change_the_configuration() -> None:
    container = make("house", "ground", house={"rooms": ["hall"]})
    container.get("house").rooms.append("attic")

    assert container.config["managers"]["house"]["rooms"] == ["hall"]


def test_a_wish_is_none_where_the_role_has_it_not() -> None:
    names = ("lamp", "roof", "house", "ground")

    assert make(*names).get("lamp").roof is not None
    assert make(*names, identity=WORKER).get("lamp").roof is None
    assert make("lamp").get("lamp").roof is None


def test_a_manager_outside_its_role_is_refused_with_the_roles_that_may_have_it() -> None:
    container = make("roof", "house", "ground", identity=WORKER)

    with pytest.raises(ProcessBoundaryError, match=r"managers\.roof: .*role worker of rank0-worker1 .*for rank;"):
        container.get("roof")


def test_the_configuration_may_change_roles() -> None:
    config = config_of("roof", "house", "ground") | {"processes": {"roles": {"roof": ["worker"], "house": None}}}

    assert Container(config, identity=WORKER).get("roof").house is not None


def test_builds_all_of_its_role_and_no_other() -> None:
    container = make("roof", "house", "ground", identity=WORKER)
    container.build_all()

    assert container.built() == ("ground", "house")


def test_an_unknown_manager_is_named_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"managers\.hose: .*did you mean 'house'\? there are ground, house"):
        make("house", "ground").get("hose")


def test_all_reasons_against_a_graph_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        make("hen", "egg", "house")

    assert "managers need each other in a circle: egg -> hen -> egg" in caught.value.problems
    assert "managers.house.ground: missing; House needs it" in caught.value.problems


def test_two_threads_that_come_at_once_build_once(events: list[str]) -> None:
    container = make("slow", "ground")
    both_here = threading.Barrier(2)
    found: list[Any] = []

    def ask() -> None:
        both_here.wait(10)
        found.append(container.get("slow"))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert found[0] is found[1]
    assert events == ["build ground", "build slow"]


def test_closing_does_not_wait_for_ever_for_a_thread_that_builds(events: list[str]) -> None:
    config = config_of("slow", "ground") | {"processes": {"close_timeout_s": 0.01}}
    container = Container(config, identity=RANK)
    errors: list[Exception] = []

    def ask() -> None:
        try:
            container.get("slow")
        except NotInitializedError as error:
            errors.append(error)

    doubles.is_building.clear()
    thread = threading.Thread(target=ask)
    thread.start()
    assert doubles.is_building.wait(10)
    problems = container.close()
    thread.join(10)

    assert problems == ["another thread is still building a manager, which is closed as soon as it is there"]
    assert len(errors) == 1
    assert events[-1] == "close slow"


def test_a_manager_that_fails_to_build_names_itself_and_leaves_the_rest_to_be_closed(events: list[str]) -> None:
    container = make("broken", "ground")

    with pytest.raises(OSError, match="no space left") as caught:
        container.get("broken")
    container.close()

    assert any("managers.broken" in note for note in caught.value.__notes__)
    assert events == ["build ground", "close ground"]


def test_one_that_fails_in_closing_is_reported_and_the_rest_is_closed(
    events: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    container = make("stubborn", "ground")
    container.get("stubborn")

    with caplog.at_level(logging.ERROR):
        problems = container.close()

    assert problems == ["managers.stubborn: closing failed: OSError('still in use')"]
    assert problems[0] in caplog.text
    assert events[-1] == "close ground"


def test_one_that_hangs_in_closing_is_given_up_with_the_place_where_it_hangs(
    events: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    container = make("hanging", "ground")
    container.get("hanging")

    problems = container.close()

    assert problems[0].startswith("managers.hanging: closing hangs and was given up")
    assert "release.wait" in problems[0]
    assert events[-1] == "close ground"


def test_a_manager_may_take_longer_than_others_if_it_says_so(events: list[str]) -> None:
    container = make("hanging", "ground")
    container.get("hanging").close_timeout_s = 30.0
    threading.Timer(0.4, doubles.release.set).start()

    assert container.close() == []


def test_an_interrupt_during_closing_is_raised_after_the_rest(events: list[str]) -> None:
    container = make("interrupted", "stubborn", "ground")
    container.build_all()

    with pytest.raises(StopRequested, match="SIGTERM"):
        container.close()

    assert events[-1] == "close ground"
    assert container.close() == []


def test_closes_from_another_thread(events: list[str]) -> None:
    container = make("house", "ground")
    container.get("house")
    thread = threading.Thread(target=container.close)

    thread.start()
    thread.join(10)

    assert events[-1] == "close ground"


def test_a_closed_container_gives_nothing() -> None:
    container = make("ground")
    container.get("ground")
    container.close()

    with pytest.raises(NotInitializedError, match=r"closed by cleanup_managers.*initialize_factory"):
        container.get("ground")


def test_a_fork_may_not_use_it() -> None:
    container = make("ground")
    container.get("ground")
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            container.get("ground")
        except ProcessBoundaryError as error:
            os.write(write_end, str(error).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()

    assert text.startswith(f"managers.ground: the managers belong to rank0 (pid {os.getpid()})")
    assert f"in pid {child}, a fork of it; call ensure_process_initialized(config)" in text


def test_building_all_in_a_warm_process_costs_little() -> None:
    """Hydra takes about 1.5 ms per manager; the whole configuration must not be read again for each."""
    make("lamp", "roof", "house", "ground").build_all()
    container = make("lamp", "roof", "house", "ground")

    started = os.times().user
    container.build_all()

    assert os.times().user - started < 0.1
