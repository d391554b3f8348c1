"""What a process was given, and what its children know of it."""

import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest

from project.common.processes import handover
from project.common.processes.handover import Handover
from project.common.processes.identity import Identity, Role
from tests.helpers.processes import put_inherited

RANK = Identity(role=Role.RANK, rank=1, world_size=2, run_dir="/run")


@pytest.fixture(autouse=True)
def _nobody() -> Iterator[None]:
    yield
    handover.set_handover(None)
    handover.share_identity(None)


def test_nothing_was_given_to_a_process_that_we_did_not_start() -> None:
    assert handover.own_handover() is None
    assert handover.handed_config() is None
    assert handover.inherited_identity() is None


def test_a_process_knows_what_it_was_given() -> None:
    handover.set_handover(Handover(identity=RANK, config={"seed": 1}))

    assert handover.handed_config() == {"seed": 1}


def test_a_user_child_and_its_child_are_workers_below_this_process(start_method: str) -> None:
    handover.share_identity(RANK)
    context: Any = multiprocessing.get_context(start_method)
    queue = context.SimpleQueue()
    child = context.Process(target=put_inherited, args=(queue, True))
    child.start()
    facts = queue.get()
    child.join(30)
    child.close()
    queue.close()

    expected = RANK.child(role=Role.WORKER, worker=0, n_workers=1).as_dict()
    assert facts["identity"] == expected
    assert facts["child"]["identity"] == expected
