"""A child's line to its parent: messages up and down, and what happens without one."""

import threading
from collections.abc import Iterator
from multiprocessing import Pipe

import pytest

from project.common.processes import handover, parent_link
from project.common.processes.child import start_child
from project.common.processes.handover import Handover
from project.common.processes.identity import Identity, Role
from project.common.processes.parent_link import process_messages, send
from project.common.processes.supervision import Supervisor
from tests.helpers import processes
from tests.helpers.processes import handover_for


@pytest.fixture(autouse=True)
def _nobody() -> Iterator[None]:
    yield
    handover.set_handover(None)


def test_a_process_without_a_parent_of_ours_sends_nothing() -> None:
    assert send("kind", 1) is False


def test_sends_by_kind_and_knows_when_the_parent_is_gone() -> None:
    ours, theirs = Pipe()
    handover.set_handover(Handover(identity=Identity(role=Role.RANK), control=theirs))
    sent = send("result", {"a": 1})
    received = ours.recv()
    ours.close()
    lost = send("result", {"a": 2})
    theirs.close()

    assert (sent, received, lost) == (True, ("result", {"a": 1}), False)


def test_lines_of_several_threads_do_not_mix() -> None:
    ours, theirs = Pipe()
    handover.set_handover(Handover(identity=Identity(role=Role.RANK), control=theirs))
    threads = [threading.Thread(target=send, args=("n", "x" * 10_000 + str(n))) for n in range(8)]
    for thread in threads:
        thread.start()
    received = {ours.recv()[1][-1] for _ in threads}
    for thread in threads:
        thread.join()
    ours.close()
    theirs.close()

    assert received == set("01234567")


def test_takes_messages_of_a_kind_in_order_and_not_for_ever() -> None:
    process_messages.put("answer", 1)
    process_messages.put("other", 0)
    process_messages.put("answer", 2)

    assert [process_messages.take("answer", limit_s=1) for _ in range(2)] == [1, 2]
    assert process_messages.take("other", limit_s=1) == 0
    with pytest.raises(TimeoutError, match=r"no 'answer' message from the parent within 0.01 s"):
        process_messages.take("answer", limit_s=0.01)


def test_a_question_of_a_child_is_answered_by_its_parent(start_method: str) -> None:
    answers: dict[str, object] = {}
    child = start_child(processes.ask, handover_for(start_method))

    def on_message(child: object, kind: str, data: object) -> None:
        if kind == "question":
            asked.send("answer", f"{data}!")
        answers[kind] = data

    asked = child
    Supervisor([child], on_message=on_message).run()

    assert answers == {"question": "prune?", "heard": "prune?!"}


def test_every_role_below_main_has_a_limit_after_its_parents_end() -> None:
    assert parent_link.ORPHAN_LIMIT_S.keys() == {Role.TRIAL, Role.RANK, Role.WORKER}
    assert max(parent_link.ORPHAN_LIMIT_S.values()) < 5
