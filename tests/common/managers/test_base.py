"""A manager stays in the process that built it."""

import copy
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable

import pytest

from project.common.errors import ProcessBoundaryError
from project.common.managers.base import Health, ThreadLocal
from project.common.processes.identity import Identity, Role, set_identity
from tests.helpers.managers import Ground, House


def in_fork(ask: Callable[[], object]) -> str:
    """Returns what `ask` returned or raised in a forked child, as text."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = repr(ask())
        except Exception as error:  # noqa: BLE001 - sent to the parent, which asserts on it
            text = f"{type(error).__name__}: {error}"
        os.write(write_end, text.encode())
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as pipe:
        return pipe.read()


@pytest.mark.parametrize("hand_over", [pickle.dumps, copy.copy, copy.deepcopy])
def test_pickling_and_copying_name_the_manager_the_processes_and_the_remedy(
    hand_over: Callable[[object], object],
) -> None:
    with pytest.raises(ProcessBoundaryError) as caught:
        hand_over(Ground())

    text = str(caught.value)
    assert text.startswith(f"managers.ground: the manager of rank0 (pid {os.getpid()})")
    assert "ensure_process_initialized(config)" in text


def test_a_manager_as_argument_of_a_spawned_process_is_refused_before_it_starts() -> None:
    process = multiprocessing.get_context("spawn").Process(target=print, args=(Ground(),))

    with pytest.raises(ProcessBoundaryError, match=r"managers\.ground"):
        process.start()

    assert process.pid is None or not process.is_alive()


@pytest.mark.parametrize(
    "use",
    [
        lambda ground: ground.depth,
        lambda ground: ground.close(),
        lambda ground: ground.check(),
        lambda ground: setattr(ground, "depth", 2),
        lambda ground: ground.local.holes,
        pickle.dumps,
    ],
)
def test_a_fork_may_not_use_what_it_inherited(use: Callable[[Ground], object]) -> None:
    ground = Ground()

    text = in_fork(lambda: use(ground))

    assert text.startswith(f"ProcessBoundaryError: managers.ground: the manager belongs to rank0 (pid {os.getpid()})")
    assert "a fork of it" in text
    assert "ensure_process_initialized(config)" in text


def test_a_fork_can_still_show_and_recognise_what_it_inherited() -> None:
    ground = Ground()

    assert "a fork of it" in in_fork(lambda: ground)
    assert in_fork(lambda: isinstance(ground, Ground)) == "True"


def test_a_fork_does_not_change_its_parents_managers() -> None:
    ground = Ground()
    in_fork(lambda: None)

    assert ground.depth == 1


def test_a_manager_that_a_fork_builds_itself_works_there() -> None:
    assert in_fork(lambda: House(ground=Ground(depth=3)).ground.depth) == "3"


def test_each_thread_has_its_own_state_with_the_first_values() -> None:
    state = ThreadLocal(depth=0)
    state.depth = 5
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(state.depth))

    thread.start()
    thread.join(10)

    assert (seen, state.depth) == ([0], 5)


def test_a_process_manager_knows_who_its_process_is() -> None:
    set_identity(Identity(role=Role.WORKER, rank=1, worker=2))
    try:
        ground = Ground()

        assert (ground.identity.label, ground.pid) == ("rank1-worker2", os.getpid())
    finally:
        set_identity(None)


def test_a_manager_is_healthy_and_closes_unless_it_says_otherwise() -> None:
    ground = Ground()
    ground.close()

    assert ground.check() == Health(ok=True, reason="nothing to check")
