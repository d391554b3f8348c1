"""However a process of a run ends: the rest ends in time, the cause is named, and the same command goes on."""

import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from project.common.process_registry import ProcessRecord
from tests.helpers.runs import outcome, run_folder, started, tiny, trivial, wait_for_step
from tests.helpers.tree import Tree
from tests.helpers.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PACED = {"PACE_S": "0.2"}
TWO_BY_TWO = ("trainer.devices=2", "loader.num_workers=2")


def to_the_end(command: list[str], folder: Path) -> tuple[int, str]:
    """Exit code and output of a command that is left alone."""
    with started(command, folder) as tree:
        code = tree.wait(120)
        tree.assert_nothing_left()
        return code, tree.text


@pytest.mark.case("03", "35")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_to_main_ends_the_run_with_its_code(tmp_path: Path, number: signal.Signals) -> None:
    with started(trivial(tmp_path, "task.run.steps=10000"), tmp_path) as tree:
        wait_for_step(tree, tmp_path)
        tree.signal(number)
        code = tree.wait(10)
        tree.assert_nothing_left(1)

        assert code == 128 + number
        assert tree.text.splitlines()[-1] == f"interrupted: {number.name}"


def test_a_batch_that_outlasts_the_configured_deadline_is_cut(tmp_path: Path) -> None:
    """Main's own handlers stand before the configuration is read, and once kept to 10 s whatever it said."""
    with started(tiny(tmp_path, "processes.deadline_s=3"), tmp_path, environ={"PACE_S": "15"}) as tree:
        wait_for_step(tree, tmp_path, 0)
        tree.signal(signal.SIGTERM)
        code = tree.wait(5)
        tree.assert_nothing_left(1)

        assert code == 143
        assert tree.text.splitlines()[-1].startswith("interrupted: SIGTERM")


@pytest.mark.case("03", "33")
def test_ctrl_c_in_a_terminal_gives_one_message(tmp_path: Path) -> None:
    with started(tiny(tmp_path, *TWO_BY_TWO), tmp_path, environ=PACED) as tree:
        wait_for_step(tree, tmp_path)
        tree.signal_group(signal.SIGINT)
        code = tree.wait(10)
        tree.assert_nothing_left(1)

        assert code == 130
        assert tree.text.count("interrupted: SIGINT") == 1
        assert tree.text.splitlines()[-1] == "interrupted: SIGINT"
        assert "Traceback" not in tree.text


@pytest.mark.case("03", "33")
def test_ctrl_c_while_everything_imports_ends_at_once(tmp_path: Path) -> None:
    with started(trivial(tmp_path), tmp_path) as tree:
        until(lambda: psutil.Process(tree.pid).children(), 30, what="the server, which begins to import")
        time.sleep(0.2)  # wherever it is by then
        tree.signal_group(signal.SIGINT)
        code = tree.wait(10)
        tree.assert_nothing_left(1)

        assert code == 130, tree.text
        assert "Traceback" not in tree.text
        assert tree.text.count("SIGINT") == 1


def victim(label: str, tree: Tree, records: dict[str, ProcessRecord]) -> int:
    if label == "server":
        (server,) = tree.titled("project: server")
        return int(server.pid)
    return records[label].key.pid


# Who is killed, and what the last line says.
KILLED = {
    "trial": r"crashed: trial \(pid {pid}\) was killed by SIGKILL",
    "rank1": r"crashed: rank1 \(pid {pid}\) was killed by SIGKILL",
    "rank1-worker0": r"crashed: .*rank 1: DataLoader worker 0 \(pid {pid}\) was killed by SIGKILL",
    "server": r"crashed: trial .* was lost with the process server \(pid {pid}\), which was killed",
}


@pytest.mark.case("01", "35")
@pytest.mark.parametrize("label", KILLED)
def test_a_killed_process_ends_the_run_with_its_name(tmp_path: Path, label: str) -> None:
    with started(tiny(tmp_path, *TWO_BY_TWO), tmp_path, environ=PACED) as tree:
        assert_names_the_killed(label, tree, tmp_path)


@pytest.mark.parametrize("label", ["trial", "rank1-worker0"])
def test_a_killed_process_ends_the_run_with_its_name_under_spawn(tmp_path: Path, label: str) -> None:
    command = tiny(tmp_path, "trainer.devices=2", "loader.num_workers=1", "processes.start_method=spawn")
    with started(command, tmp_path, environ=PACED) as tree:
        assert_names_the_killed(label, tree, tmp_path)


def assert_names_the_killed(label: str, tree: Tree, folder: Path) -> None:
    pid = victim(label, tree, wait_for_step(tree, folder, 2))
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    code = tree.wait(10)
    tree.assert_nothing_left(max(0.1, killed + 5 - time.monotonic()))

    assert code == 1, tree.text
    assert re.match(KILLED[label].format(pid=pid), tree.text.splitlines()[-1]), tree.text
    assert "the same command goes on from it" in tree.text
    end = outcome(run_folder(folder))
    assert (end["status"], end["exit_code"]) == ("crashed", 1)


@pytest.mark.case("01")
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_what_a_killed_main_leaves_ends_by_itself_and_the_same_command_goes_on(tmp_path: Path, method: str) -> None:
    command = tiny(tmp_path, *TWO_BY_TWO, f"processes.start_method={method}")
    with started(command, tmp_path, environ=PACED) as tree:
        wait_for_step(tree, tmp_path, 2)
        tree.signal(signal.SIGKILL)
        tree.assert_nothing_left(5)
        assert tree.wait(1) == -signal.SIGKILL
    layout = run_folder(tmp_path)
    had_outcome = layout.outcome.exists()
    code, text = to_the_end([*command, "processes.start_method=auto"], tmp_path)

    assert not had_outcome
    assert code == 0, text
    assert text.startswith(f"goes on (attempt 2, found killed): {layout.run_dir}\n")
    assert "goes on from" in text
    assert outcome(layout)["attempts"] == 2


@pytest.mark.case("38")
def test_a_group_that_is_killed_leaves_nothing_that_the_next_start_keeps(tmp_path: Path) -> None:
    command = tiny(tmp_path, *TWO_BY_TWO)
    with started(command, tmp_path, environ=PACED) as tree:
        wait_for_step(tree, tmp_path, 1)
        for process in tree.processes():
            process.kill()
        tree.assert_nothing_left(5)
    code, text = to_the_end(command, tmp_path)

    assert code == 0, text
    assert not list(run_folder(tmp_path).run_dir.rglob("*.tmp-*"))
