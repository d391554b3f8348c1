"""The process server's life: it ends with main, is replaced when its code changes, and its loss is told."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from project.common.errors import ProcessServerError
from project.common.processes import process_server
from tests.helpers.mains import MAIN, run_main
from tests.helpers.processes import handover_for, run_child
from tests.helpers.tree import ROOT, running
from tests.helpers.waiting import until


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path of children, for modules of a test's own."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    return tmp_path


def test_says_how_it_was_killed_while_importing(package: Path) -> None:
    (package / "kills.py").write_text("import os\nos.kill(os.getpid(), 9)\n")

    (error,) = run_main("print(report()['error'])", ("kills",))

    assert "it ended while importing (was killed by SIGKILL)" in error


def test_nothing_is_left_a_second_after_main_was_killed_while_the_server_imports(package: Path, tmp_path: Path) -> None:
    (package / "slow.py").write_text(
        "import pathlib, time\npathlib.Path(__file__ + '.began').touch()\ntime.sleep(60)\n"
    )

    with running(["python", "-c", MAIN % (("slow",),) + "time.sleep(60)"], output=tmp_path / "out") as tree:
        until((package / "slow.py.began").exists, 20)
        tree.signal(signal.SIGKILL)
        tree.wait()

        tree.assert_nothing_left(1.0)


SLEEPERS = """
import multiprocessing
report()
context = multiprocessing.get_context("forkserver")
children = [context.Process(target=time.sleep, args=(600,)) for _ in range(2)]
for child in children: child.start()
print("ready", *[child.pid for child in children], flush=True)
"""


def test_the_server_and_its_children_end_when_main_is_killed(tmp_path: Path) -> None:
    with running(["python", "-c", MAIN % ((),) + SLEEPERS + "time.sleep(60)"], output=tmp_path / "out") as tree:
        tree.wait_until_written("ready")
        assert len(tree.processes()) >= 4
        tree.signal(signal.SIGKILL)
        tree.wait()

        tree.assert_nothing_left(2.0)


def test_children_end_with_a_killed_server_and_main_can_tell() -> None:
    lines = run_main(
        SLEEPERS
        + """
os.kill(process_server.pid(), 9)
for child in children: child.join(5)
while process_server.is_running(): time.sleep(0.01)
print([child.exitcode for child in children])
process_server.start(())
print(report()["problems"], process_server.is_running())
process_server.stop()
"""
    )

    assert lines[1:] == ["[255, 255]", "[] True"]


def test_an_exit_with_255_is_no_lost_server(served: int, tmp_path: Path) -> None:
    child, _ = run_child(os._exit, handover_for("forkserver", tmp_path), 255)

    assert (child.exit_code, child.process.lost_server) == (255, False)


def test_a_main_that_lives_on_gets_a_new_server_when_a_preloaded_file_of_ours_was_edited(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "project", copy / "project")
    code = MAIN % (("project.common.processes.stop",),) + textwrap.dedent(
        """
        report()
        first = process_server.pid()
        process_server.start(("project.common.processes.stop",))
        print(process_server.pid() == first)
        from project.common.processes import stop
        os.utime(stop.__file__, (1, 1))
        process_server.start(("project.common.processes.stop",))
        print(process_server.pid() == first)
        process_server.stop()
        """
    )

    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=copy,
        env=os.environ | {"PYTHONPATH": ""},
        check=False,
    )

    assert result.stdout.splitlines()[1:] == ["True", "False"], result.stderr


def test_an_edited_user_module_is_new_code_in_the_next_child(package: Path) -> None:
    (package / "users.py").write_text("def answer(): print('old', flush=True)\n")

    lines = run_main(
        f"""
        import multiprocessing, pathlib, users
        report()
        for text in ("old", "new!"):
            pathlib.Path({str(package / "users.py")!r}).write_text(f"def answer(): print({{text!r}}, flush=True)\\n")
            process = multiprocessing.get_context("forkserver").Process(target=users.answer)
            process.start(); process.join()
        process_server.stop()
        """
    )

    assert lines == ["old", "new!"]


def test_starting_from_a_thread_works_and_says_so() -> None:
    code = MAIN.replace("process_server.start(%r)", "").replace("print(", "0 and print(") + textwrap.dedent(
        """
        import logging, multiprocessing, threading
        logging.basicConfig(level="WARNING", stream=sys.stdout, format="%(message)s")
        thread = threading.Thread(target=process_server.start, args=((),))
        thread.start(); thread.join(); time.sleep(0.3)
        report()
        child = multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(0.3,))
        child.start(); child.join()
        print(child.exitcode)
        """
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )

    said, exit_code = result.stdout.splitlines()
    assert "started from a thread" in said
    assert exit_code == "0"


def test_a_server_that_needs_too_long_is_given_up(package: Path) -> None:
    (package / "slow.py").write_text("import time\ntime.sleep(60)\n")

    lines = run_main(
        """
        try:
            process_server.wait_until_ready(0.2)
        except ProcessServerError as error:
            print(error)
        process_server.stop()
        print(process_server.is_running())
        """,
        ("slow",),
    )

    assert lines == ["process server: not ready in time; use processes.start_method=spawn", "False"]


def test_forking_from_a_server_that_is_gone_is_one_clear_error() -> None:
    lines = run_main(
        """
        import sys; sys.path.insert(0, os.getcwd())
        from tests.helpers.processes import handover_for, run_child, send_facts
        report()
        os.kill(process_server.pid(), 9)
        while process_server.is_running(): time.sleep(0.01)
        try:
            run_child(send_facts, handover_for("forkserver"))
        except ProcessServerError as error:
            print(error)
        process_server.stop()
        """
    )

    assert lines == ["the process server has ended or was killed, so trial could not be started"]


def test_a_killed_main_leaves_no_socket_once_another_has_started(tmp_path: Path, short_folder: Path) -> None:
    with running(
        ["python", "-c", MAIN % ((),) + "report(); print('ready', flush=True); time.sleep(60)"],
        output=tmp_path / "out",
        environ={"TMPDIR": str(short_folder)},
    ) as tree:
        tree.wait_until_written("ready")
        assert list(short_folder.glob("project-tree-*/listener-*"))
        tree.signal(signal.SIGKILL)
        tree.wait()
        tree.assert_nothing_left()

    run_main("report(); process_server.stop()", TMPDIR=str(short_folder))

    assert list(short_folder.iterdir()) == []


def test_is_not_shared_with_a_user_fork(served: int) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0 if process_server.pid() is None else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_an_unready_server_raises_again_each_time(package: Path) -> None:
    (package / "broken.py").write_text("raise RuntimeError\n")

    lines = run_main("print(report()['error'] == report()['error'])", ("broken",))

    assert lines == ["True"]
    assert issubclass(ProcessServerError, Exception)
