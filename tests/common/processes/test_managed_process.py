"""What every process of the tree does first and last, and what it refuses to be given."""

import logging
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from project.common import process_registry
from project.common.errors import ProcessBoundaryError
from project.common.processes.child import start_child
from project.common.processes.handover import inherited_identity
from project.common.processes.identity import Role
from project.common.processes.managed_process import ManagedContext, ManagedProcess
from tests.helpers import guards, processes
from tests.helpers.processes import handover_for, run_child


def test_a_child_knows_who_it_is_and_what_it_was_given(start_method: str, tmp_path: Path) -> None:
    handover = handover_for(start_method, tmp_path, role=Role.RANK, rank=1, world_size=2, trial=7, config={"seed": 1})
    _, messages = run_child(processes.send_facts, handover)

    facts = messages["facts"]
    assert facts["identity"] == handover.identity.as_dict()
    assert facts["config"] == {"seed": 1}
    assert facts["environ"]["XDG_STATE_HOME"] == os.environ["XDG_STATE_HOME"]


def test_a_child_ignores_sigint_notes_sigterm_and_has_no_signal_blocked(start_method: str, tmp_path: Path) -> None:
    _, messages = run_child(processes.send_facts, handover_for(start_method, tmp_path))

    assert messages["facts"]["handlers"]["SIGINT"] == str(signal.SIG_IGN)
    assert "SignalNotes._note" in messages["facts"]["handlers"]["SIGTERM"]
    assert messages["facts"]["blocked"] == []
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_a_child_is_in_the_registry_from_its_start_to_its_end(start_method: str, tmp_path: Path) -> None:
    child, messages = run_child(processes.send_facts, handover_for(start_method, tmp_path))

    (record,) = process_registry.read_run(tmp_path)
    assert record.key.pid == messages["facts"]["pid"] == child.process.pid
    assert record.parent_pid == os.getpid(), "its logical parent, not who forked it"
    assert record.start_method == start_method
    assert [state for state, _ in record.history] == ["starting", "closing", "ended"]
    assert record.outcome is not None
    assert record.outcome["status"] == "completed"


@pytest.mark.case("22")
def test_every_line_is_once_in_the_run_log_and_once_in_the_own_file(start_method: str, tmp_path: Path) -> None:
    ranks = [handover_for(start_method, tmp_path, role=Role.RANK, rank=rank, world_size=2) for rank in (0, 1)]
    pids = [run_child(processes.log_and_print, rank, f"words of {i}")[0].process.pid for i, rank in enumerate(ranks)]

    run_log = (tmp_path / "logs" / "run.log").read_text()
    for rank, pid in enumerate(pids):
        assert run_log.count(f"words of {rank}") == 1
        own = (tmp_path / "logs" / f"rank{rank}-{pid}.log").read_text()
        assert own.count(f"tests: words of {rank}") == 1
        assert f"rank{rank}" in own
        assert str(pid) in own


@pytest.mark.case("22")
def test_what_other_ranks_print_is_in_their_log_and_not_on_the_terminal(
    start_method: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    child, _ = run_child(
        processes.log_and_print, handover_for(start_method, tmp_path, role=Role.RANK, rank=1, world_size=2), "secret"
    )

    assert "printed secret" in (tmp_path / "logs" / f"rank1-{child.process.pid}.log").read_text()
    shown = capfd.readouterr()
    assert "secret" not in shown.out + shown.err


@pytest.mark.case("22")
def test_the_traceback_of_a_failed_child_is_in_the_run_log(start_method: str, tmp_path: Path) -> None:
    run_child(processes.end_by, handover_for(start_method, tmp_path), "raise")

    assert (tmp_path / "logs" / "run.log").read_text().count("ValueError: on purpose") == 1


def test_a_fatal_signal_leaves_the_stacks_in_the_own_log(start_method: str, tmp_path: Path) -> None:
    child, _ = run_child(processes.end_by, handover_for(start_method, tmp_path), "SIGSEGV")

    text = (tmp_path / "logs" / f"trial-{child.process.pid}.log").read_text()
    assert "Fatal Python error: Segmentation fault" in text
    assert "in end_by" in text


def test_a_user_child_and_its_child_are_workers_below_us(start_method: str, tmp_path: Path) -> None:
    handover = handover_for(start_method, tmp_path, role=Role.RANK, rank=1, world_size=2)
    _, messages = run_child(processes.send_grandchild_facts, handover)

    for facts in (messages["user"], messages["user"]["child"], messages["worker"]):
        assert facts["identity"]["role"] == "worker"
        assert facts["identity"]["rank"] == 1
        assert facts["identity"]["run_dir"] == str(tmp_path)


def test_a_child_that_a_thread_started_outlives_the_thread(start_method: str, tmp_path: Path) -> None:
    """The kernel binds a child to the thread that started it, and killed the child when the thread ended."""
    _, messages = run_child(processes.send_from_thread, handover_for(start_method, tmp_path, rank=0))

    assert messages["alive"] is True


def test_starting_from_a_thread_of_main_works(start_method: str, tmp_path: Path) -> None:
    results: list[Any] = []
    thread = threading.Thread(
        target=lambda: results.append(run_child(processes.send_facts, handover_for(start_method, tmp_path)))
    )
    thread.start()
    thread.join(60)

    child, messages = results[0]
    assert child.exit_code == 0
    assert messages["facts"]["blocked"] == []


class Holder:
    """Plain but for what it holds."""

    def __init__(self, held: object) -> None:
        self.held = held


def _generator() -> object:
    yield 1


def _tensor(kind: str) -> object:
    import torch

    if kind == "model":
        return torch.nn.Linear(1, 1)
    return torch.zeros(1, device="meta") if kind == "device" else torch.zeros(1).share_memory_()


def _lambda() -> Callable[[], int]:
    return lambda: 1


def _of_local_class() -> object:
    class Local: ...

    return Local()


def _open_file() -> object:
    return open(os.devnull)  # the test closes it


def _local() -> Callable[[], None]:
    def inner() -> None: ...

    return inner


THINGS: dict[str, tuple[Callable[[], Any], str]] = {
    "a lambda": (_lambda, "a lambda cannot cross; define a function at module level"),
    "a local function": (_local, "is defined inside a function; move it to module level"),
    "a local class": (_of_local_class, "cannot be pickled"),
    "an open file": (_open_file, "an open file cannot cross; give its path and open it there"),
    "a lock": (threading.Lock, "cannot be pickled (cannot pickle '_thread.lock' object)"),
    "a generator": (_generator, "a generator belongs to the process that runs it"),
    "a connection": (lambda: sqlite3.connect(":memory:"), "cannot be pickled (cannot pickle 'sqlite3.Connection'"),
    "a module": (lambda: logging, "module logging cannot cross; import it there"),
    "a tensor elsewhere": (lambda: _tensor("device"), "a tensor on meta cannot cross; use to_cpu() first"),
    "a shared tensor": (lambda: _tensor("shared"), "a shared tensor would tie the processes together"),
    "a model": (lambda: _tensor("model"), "a model is never handed over"),
}


def take(data: object, *more: object) -> None:
    """A target with a parameter of that name."""


@pytest.mark.parametrize("thing", THINGS)
def test_refuses_what_cannot_cross_by_its_path_and_starts_nothing(start_method: str, thing: str) -> None:
    make, words = THINGS[thing]
    held = make()
    before = guards.processes()

    with pytest.raises(ProcessBoundaryError) as caught:
        start_child(take, handover_for(start_method), args=({"a": [0, Holder(held)]},))

    if hasattr(held, "close"):
        held.close()
    assert str(caught.value).startswith("data['a'][1].held: ")
    assert words in str(caught.value)
    assert guards.processes() == before
    caught.value.__traceback__ = None  # its frames hold what was refused


def test_refuses_a_target_that_is_a_lambda(start_method: str) -> None:
    with pytest.raises(ProcessBoundaryError, match="target: a lambda cannot cross"):
        start_child(lambda: None, handover_for(start_method))


def test_refuses_a_configuration_that_is_not_plain(start_method: str) -> None:
    with pytest.raises(ProcessBoundaryError, match=r"config\['task'\]\['model'\]: a model is never handed over"):
        start_child(take, handover_for(start_method, config={"task": {"model": _tensor("model")}}))


def test_plain_data_and_cpu_tensors_may_cross(start_method: str) -> None:
    import torch

    handed = {"a": (1, "b", None, 2.5, b"c"), "t": torch.ones(2), "path": Path("x")}
    child, _ = run_child(take, handover_for(start_method), handed)

    assert child.exit_code == 0, child.how_it_ended()


def test_a_context_for_workers_numbers_them_and_travels_as_the_standard_one(start_method: str) -> None:
    import pickle

    context = ManagedContext(n_workers=2)

    assert context.get_start_method() == "spawn", "outside a tree"
    assert pickle.loads(pickle.dumps(context)).get_start_method() == "spawn"
    assert context.get_context("spawn") is context
    assert issubclass(ManagedProcess, type(context.get_context("fork").Process(target=take)).__mro__[1])


def test_nobody_inherits_an_identity_outside_a_run() -> None:
    assert inherited_identity() is None
