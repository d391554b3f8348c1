"""The process server: clean, main's own, and one for the whole tree; its life is in test_process_server_life.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from project.common.processes import process_server
from project.common.processes.handover import process_environ
from tests.helpers import forks, processes
from tests.helpers.mains import run_main
from tests.helpers.processes import handover_for, run_child
from tests.helpers.tree import ROOT


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
    assert str(ROOT / "project" / "common" / "processes" / "server_main.py") in report["files"]


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
        "from project.common.processes import server_main\n"
        "server_main.DEVICES = ('/dev/null',)\nfile = open('/dev/null')\n"
    )

    (error,) = run_main("print(report()['error'])", ("opens_a_device",))

    assert "open devices: /dev/null" in error


def test_reports_a_failed_import_and_is_refused(package: Path) -> None:
    (package / "broken.py").write_text("raise RuntimeError('no good')\n")

    (error,) = run_main("print(report()['error'])", ("broken", "no_such_module"))

    assert "broken: RuntimeError: no good" in error
    assert "no_such_module: ModuleNotFoundError" in error


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
        from project.common.processes.handover import process_environ
        from tests.helpers.processes import handover_for, run_child, send_facts
        report()
        _, messages = run_child(send_facts, handover_for("forkserver"))
        print(messages["facts"]["environ"].get("SET_BY_IMPORT"), process_server.differing_variables(process_environ()))
        process_server.stop()
        """,
        ("sets",),
    )

    assert lines == ["1 []"]


def test_names_variables_that_are_read_at_import_and_differ(served: int) -> None:
    environ = process_environ() | {"OMP_NUM_THREADS": "7", "HF_HOME": "/elsewhere", "LR": "1"}

    assert process_server.differing_variables(environ) == ["HF_HOME", "OMP_NUM_THREADS"]
    assert process_server.differing_variables(process_environ()) == []


def test_thread_counts_are_set_by_call_and_told_to_what_comes_later(served: int) -> None:
    _, messages = run_child(processes.send_env_and_threads, handover_for("forkserver", threads=1), "OMP_NUM_THREADS")

    assert messages["threads"] == 1
    assert messages["env"] == "1"


def test_nobody_is_asked_for_a_report_before_a_server_is_started() -> None:
    code = "from project.common.processes import process_server; process_server.wait_until_ready()"

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )

    assert "process server: not started in this process; call process_server.start() first" in result.stderr


def test_says_why_it_is_not_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")

    assert process_server.is_possible() == "win32 cannot fork"


def test_the_report_is_plain_data(served: int) -> None:
    assert json.loads(json.dumps(process_server.wait_until_ready()))


@pytest.mark.usefixtures("served")
def test_what_a_process_of_the_tree_forks_by_itself_lives() -> None:
    """The server's check that it is the parent ran in grandchildren, too, and ended each at once with exit code 1."""
    child, messages = run_child(forks.send_exit_codes, handover_for("forkserver"))

    assert child.exit_code == 0
    assert messages["codes"] == {"main": 7, "thread": 7, "multiprocessing": 7}


def test_what_a_library_sets_when_main_imports_it_is_no_difference(served: int) -> None:
    environ = process_environ() | {"KMP_DUPLICATE_LIB_OK": "True", "KMP_INIT_AT_FORK": "FALSE"}

    assert process_server.differing_variables(environ) == []
