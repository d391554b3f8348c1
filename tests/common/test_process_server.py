"""The process server: clean, main's own, mortal, replaced when its code changes, and one for the whole tree."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from project.common import process_server
from project.common.errors import ProcessServerError
from tests.helpers import processes
from tests.helpers.processes import handover_for, run_child
from tests.helpers.tree import ROOT, running
from tests.helpers.waiting import until

# A main of its own: the session's server must stay as it is. `%s` are module names to preload.
MAIN = """
import json, os, sys, time
from project.common import process_server
from project.common.errors import ProcessServerError

def report():
    try:
        return process_server.wait_until_ready()
    except ProcessServerError as error:
        return {"error": str(error)}

process_server.start(%r)
print("server", process_server.pid(), flush=True)
"""


def run_main(body: str, preload: tuple[str, ...] = (), **environ: str) -> list[str]:
    """Lines that a main prints which starts a server and then does `body`."""
    code = MAIN % (preload,) + textwrap.dedent(body)
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env=os.environ | environ,
        check=True,
    )
    return result.stdout.splitlines()[1:]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path of children, for modules of a test's own."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    return tmp_path


def test_has_no_thread_that_is_not_known_to_survive_a_fork(served: int) -> None:
    report = process_server.wait_until_ready()

    assert report["threads"] in ([], ["jemalloc_bg_thd"]), "a new native thread: is a fork safe beside it?"
    assert report["problems"] == []


def test_says_what_it_imported_and_how_long_that_took(served: int) -> None:
    report = process_server.wait_until_ready()

    assert report["seconds"] > 0
    assert str(ROOT / "project" / "common" / "server_main.py") in report["files"]


def test_never_preloads_tasks_or_user_modules(served: int) -> None:
    child, messages = run_child(processes.send_facts, handover_for("forkserver"))

    assert child.exit_code == 0
    loaded = messages["facts"]["modules"]
    assert "torch" in loaded
    assert "lightning.pytorch" in loaded
    assert [name for name in loaded if name.startswith("project.tasks")] == []
    assert [name for name in loaded if name.startswith("tests.") and name != "tests.helpers"] in (
        ["tests.helpers.processes"],
        ["tests.helpers.processes", "tests.helpers.waiting"],
    )


def test_refuses_to_serve_beside_python_threads(package: Path) -> None:
    (package / "starts_a_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True, name='stray').start()\n"
    )

    (error,) = run_main("print(report()['error'])", ("starts_a_thread",))

    assert "Python threads: stray" in error


def test_refuses_to_serve_beside_a_new_native_thread(package: Path) -> None:
    (package / "native.py").write_text(
        "import ctypes\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.pause, None)\n"
    )

    (error,) = run_main("print(report()['error'])", ("native",))

    assert "native threads: " in error


def test_refuses_to_serve_once_cuda_is_initialised(package: Path) -> None:
    (package / "torch.py").write_text(
        "class cuda:\n    @staticmethod\n    def is_initialized():\n        return True\n"
    )

    (error,) = run_main("print(report()['error'])", ("torch",))

    assert "CUDA is initialised" in error


def test_refuses_to_serve_with_a_gpu_device_open(package: Path) -> None:
    (package / "opens_a_device.py").write_text(
        "from project.common import server_main\nserver_main.DEVICES = ('/dev/null',)\nfile = open('/dev/null')\n"
    )

    (error,) = run_main("print(report()['error'])", ("opens_a_device",))

    assert "open devices: /dev/null" in error


def test_reports_a_failed_import_and_is_refused(package: Path) -> None:
    (package / "broken.py").write_text("raise RuntimeError('no good')\n")

    (error,) = run_main("print(report()['error'])", ("broken", "no_such_module"))

    assert "broken: RuntimeError: no good" in error
    assert "no_such_module: ModuleNotFoundError" in error


def test_says_how_it_was_killed_while_importing(package: Path) -> None:
    (package / "kills.py").write_text("import os\nos.kill(os.getpid(), 9)\n")

    (error,) = run_main("print(report()['error'])", ("kills",))

    assert "it ended while importing (was killed by SIGKILL)" in error


def test_freezes_the_garbage_collector_before_serving(package: Path) -> None:
    (package / "frozen.py").write_text(
        "import gc, pathlib\ndef write(path):\n    pathlib.Path(path).write_text(str(gc.get_freeze_count()))\n"
    )

    run_main(
        f"""
        import multiprocessing
        report()
        import frozen
        process = multiprocessing.get_context("forkserver").Process(target=frozen.write, args=({str(package / "n")!r},))
        process.start(); process.join()
        process_server.stop()
        """
    )

    assert int((package / "n").read_text()) > 1000


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
print([child.exitcode for child in children], process_server.was_lost(), process_server.is_running())
process_server.start(())
print(report()["problems"], process_server.is_running())
process_server.stop()
"""
    )

    assert lines[1:] == ["[255, 255] True False", "[] True"]


def test_a_server_that_lives_was_not_lost(served: int) -> None:
    assert not process_server.was_lost(0.01)


def test_a_main_that_lives_on_gets_a_new_server_when_a_preloaded_file_of_ours_was_edited(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "project", copy / "project")
    code = MAIN % (("project.common.stop",),) + textwrap.dedent(
        """
        report()
        first = process_server.pid()
        process_server.start(("project.common.stop",))
        print(process_server.pid() == first)
        from project.common import stop
        os.utime(stop.__file__, (1, 1))
        process_server.start(("project.common.stop",))
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


def test_one_server_forks_the_whole_tree(served: int, tmp_path: Path) -> None:
    child, messages = run_child(processes.send_grandchild_facts, handover_for("forkserver", tmp_path, rank=0))

    assert child.exit_code == 0, child.how_it_ended()
    assert messages["user"]["parent"] == served
    assert messages["worker"]["parent"] == served
    assert [p for p in psutil.Process(served).children() if "forkserver" in " ".join(p.cmdline())] == []


def test_a_child_sees_the_environment_it_was_handed_and_not_the_servers(served: int) -> None:
    environ = dict(os.environ) | {"HANDED": "yes"}
    environ.pop("XDG_CACHE_HOME")

    _, messages = run_child(processes.send_facts, handover_for("forkserver", environ=environ))

    assert messages["facts"]["environ"]["HANDED"] == "yes"
    assert "XDG_CACHE_HOME" not in messages["facts"]["environ"]


def test_a_child_keeps_what_imports_set_in_the_environment(package: Path) -> None:
    (package / "sets.py").write_text("import os\nos.environ['SET_BY_IMPORT'] = '1'\n")

    lines = run_main(
        """
        import sys; sys.path.insert(0, os.getcwd())
        from tests.helpers.processes import handover_for, run_child, send_facts
        report()
        _, messages = run_child(send_facts, handover_for("forkserver"))
        print(messages["facts"]["environ"].get("SET_BY_IMPORT"), process_server.differing_variables(os.environ))
        process_server.stop()
        """,
        ("sets",),
    )

    assert lines == ["1 []"]


def test_names_variables_that_are_read_at_import_and_differ(served: int) -> None:
    environ = dict(os.environ) | {"OMP_NUM_THREADS": "7", "HF_HOME": "/elsewhere", "LR": "1"}

    assert process_server.differing_variables(environ) == ["HF_HOME", "OMP_NUM_THREADS"]
    assert process_server.differing_variables(os.environ) == []


def test_thread_counts_are_set_by_call(served: int) -> None:
    _, messages = run_child(processes.send_env_and_threads, handover_for("forkserver", threads=1), "OMP_NUM_THREADS")

    assert messages["threads"] == 1
    assert messages["env"] == os.environ.get("OMP_NUM_THREADS")


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


def test_nobody_is_asked_for_a_report_before_a_server_is_started() -> None:
    code = "from project.common import process_server; process_server.wait_until_ready()"

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )

    assert "process server: not started in this process; call process_server.start() first" in result.stderr


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


def test_says_why_it_is_not_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")

    assert process_server.is_possible() == "win32 cannot fork"


def test_forking_from_a_server_that_is_gone_is_one_clear_error() -> None:
    lines = run_main(
        """
        import sys; sys.path.insert(0, os.getcwd())
        from tests.helpers.processes import handover_for, run_child, send_facts
        report()
        os.kill(process_server.pid(), 9)
        process_server.was_lost()
        try:
            run_child(send_facts, handover_for("forkserver"))
        except ProcessServerError as error:
            print(error)
        process_server.stop()
        """
    )

    assert lines == ["process server: gone, trial cannot be forked; call process_server.start()"]


def test_a_killed_main_leaves_no_socket_once_another_has_started(tmp_path: Path) -> None:
    with running(
        ["python", "-c", MAIN % ((),) + "report(); print('ready', flush=True); time.sleep(60)"],
        output=tmp_path / "out",
        environ={"TMPDIR": str(tmp_path)},
    ) as tree:
        tree.wait_until_written("ready")
        tree.signal(signal.SIGKILL)
        tree.wait()
        tree.assert_nothing_left()

    run_main("report(); process_server.stop()", TMPDIR=str(tmp_path))

    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_the_report_is_plain_data(served: int) -> None:
    assert json.loads(json.dumps(process_server.wait_until_ready()))


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
