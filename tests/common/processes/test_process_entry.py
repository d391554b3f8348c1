"""What a process does first and last: title, environment, managers closed whatever happens, threads by call."""

import os
from pathlib import Path

import psutil
import pytest

from project.common import process_registry
from project.common.processes.child import start_child
from project.common.processes.identity import Role
from tests.helpers import processes
from tests.helpers.processes import handover_for, run_child
from tests.helpers.waiting import until


def test_the_title_shows_the_role(start_method: str, tmp_path: Path) -> None:
    handover = handover_for(start_method, tmp_path, role=Role.RANK, rank=1, world_size=2)
    child = start_child(processes.ignore_requests, handover, args=(str(tmp_path / "on"),))
    until((tmp_path / "on").exists, 30)
    title = " ".join(psutil.Process(child.process.pid).cmdline())
    child.kill()
    child.process.join(5)
    if child.control is not None:
        child.control.close()

    assert title.strip() == f"project: rank1 {tmp_path.name}"


def test_a_trial_leads_its_own_session(start_method: str, tmp_path: Path) -> None:
    child, messages = run_child(processes.send_session, handover_for(start_method, tmp_path))

    assert messages["session"] == child.process.pid


@pytest.mark.parametrize("way", ["return", "raise", "sys.exit(0)", "SIGTERM"])
def test_managers_are_closed_however_the_work_ends(start_method: str, tmp_path: Path, way: str) -> None:
    run_child(processes.end_with_managers, handover_for(start_method, tmp_path), way, str(tmp_path / "closed"))

    assert (tmp_path / "closed").read_text() == str(next(r.key.pid for r in process_registry.read_run(tmp_path)))


def test_an_error_in_closing_after_success_is_the_outcome(start_method: str, tmp_path: Path) -> None:
    child, _ = run_child(processes.end_with_managers, handover_for(start_method, tmp_path), "return", "")

    assert child.exit_code == 1
    assert "FileNotFoundError" in child.how_it_ended()


def test_an_error_in_closing_does_not_hide_the_first_one(start_method: str, tmp_path: Path) -> None:
    child, _ = run_child(processes.end_with_managers, handover_for(start_method, tmp_path), "raise", "")

    assert child.how_it_ended().endswith("ValueError: on purpose")


def test_the_environment_is_whole_and_exact(start_method: str) -> None:
    environ = {"PATH": os.environ["PATH"], "ONLY": "this"}
    _, messages = run_child(processes.send_facts, handover_for(start_method, environ=environ))

    seen = messages["facts"]["environ"]
    assert seen["ONLY"] == "this"
    assert "HOME" not in seen
