"""Trees whose main is a program of its own: killed, told to stop, or interrupted while its children import."""

import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.helpers.tree import Tree, running
from tests.helpers.waiting import until

MAIN = """
import sys
from pathlib import Path
from project.common.processes import process_server, stop
from project.common.processes.signals import SignalNotes
from project.common.processes.child import start_child
from project.common.processes.supervision import Supervisor
from tests.helpers import processes

def work(method, folder, target):
    if method == "forkserver":
        process_server.start(())
        process_server.wait_until_ready()
    handover = processes.handover_for(method, Path(folder))
    child = start_child(processes.start_ranks, handover, args=(2, folder, getattr(processes, target)))
    Supervisor([child]).run()
    print("ended:", child.how_it_ended())

if __name__ == "__main__":
    with SignalNotes(deadline_s=4.0):
        try:
            work(*sys.argv[1:])
        except stop.StopRequested as stopped:
            print("stopped:", stopped)
        process_server.stop()
    sys.exit(stop.stop_request().exit_code if stop.stop_request() else 1)
"""


def main_tree(method: str, folder: Path, target: str) -> AbstractContextManager[Tree]:
    script = folder / "main.py"
    script.write_text(MAIN)
    return running(
        ["python", str(script), method, str(folder), target],
        output=folder / "out",
        environ={"PYTHONPATH": str(Path(__file__).parents[3])},
    )


@pytest.mark.case("01")
@pytest.mark.parametrize("target", ["work_until_stopped", "hold_the_gil"])
def test_nothing_is_left_of_the_tree_of_a_killed_main(start_method: str, tmp_path: Path, target: str) -> None:
    with main_tree(start_method, tmp_path, target) as tree:
        until(lambda: (tmp_path / "rank0").exists() and (tmp_path / "rank1").exists(), 60, what=tree.text)
        tree.signal(signal.SIGKILL)
        tree.wait()

        tree.assert_nothing_left(5)


@pytest.mark.slow  # twelve trees
@pytest.mark.parametrize("to_group", [False, True])
@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_tree_in_order(
    start_method: str, tmp_path: Path, number: int, exit_code: int, to_group: bool
) -> None:
    with main_tree(start_method, tmp_path, "work_until_stopped") as tree:
        until(lambda: (tmp_path / "rank0").exists() and (tmp_path / "rank1").exists(), 60, what=tree.text)
        (tree.signal_group if to_group else tree.signal)(number)

        assert tree.wait(5) == exit_code
        tree.assert_nothing_left(1)
        assert "Traceback" not in tree.text
        assert signal.Signals(number).name in tree.text


@pytest.mark.case("33")
def test_an_interrupt_while_children_still_import_shows_no_traceback(start_method: str, tmp_path: Path) -> None:
    with main_tree(start_method, tmp_path, "work_until_stopped") as tree:
        until(lambda: len(tree.processes()) >= 3, 30, what=tree.text)
        tree.signal_group(signal.SIGINT)

        assert tree.wait(8) == 130
        tree.assert_nothing_left(1)
        assert "Traceback" not in tree.text


def test_a_lost_server_is_told_apart_from_a_dead_child(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        MAIN.replace('print("ended:"', 'print("lost:", watch.server_lost, "ended:"').replace(
            "    Supervisor([child]).run()", "    watch = Supervisor([child])\n    watch.run()"
        )
    )
    with running(
        ["python", str(script), "forkserver", str(tmp_path), "work_until_stopped"],
        output=tmp_path / "out",
        environ={"PYTHONPATH": str(Path(__file__).parents[3])},
    ) as tree:
        until(lambda: (tmp_path / "rank1").exists() and (tmp_path / "rank0").exists(), 60, what=tree.text)
        (server,) = tree.titled("project: server")
        server.kill()
        tree.wait(5)

        tree.assert_nothing_left(1)
        assert "lost: True" in tree.text
        assert f"was lost with the process server (pid {server.pid}), which was killed" in tree.text


def test_a_stopped_server_does_not_keep_its_parent_from_ending(tmp_path: Path) -> None:
    """A killed child's end is told by the server alone, so main waited for ever and said the same line each second."""
    with main_tree("forkserver", tmp_path, "work_until_stopped") as tree:
        until(lambda: (tmp_path / "rank1").exists() and (tmp_path / "rank0").exists(), 60, what=tree.text)
        (server,) = tree.titled("project: server")
        (trial,) = tree.titled("project: trial")
        trial.suspend()
        server.suspend()
        tree.signal(signal.SIGINT)
        tree.wait(13)

        tree.assert_nothing_left(1)
        assert tree.text.count("did not stop in time and was killed") == 1
