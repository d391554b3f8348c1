"""What the server says of itself. How it serves is in test_process_server.py."""

import re
import subprocess
import sys
import threading
from pathlib import Path

from project.common.processes import server_main
from tests.helpers.tree import ROOT


def test_names_native_threads_also_those_that_python_does_not_know() -> None:
    code = (
        "import ctypes, time; from project.common.processes import server_main\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.pause, None); time.sleep(0.1)\n"
        "print(server_main.native_threads() != [], server_main.unclean()[0].startswith('native threads: '))\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, cwd=ROOT, check=True
    )

    assert result.stdout == "True True\n"


def test_a_clean_process_has_no_problem() -> None:
    code = "from project.common.processes import server_main; print(server_main.unclean())"

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, cwd=ROOT, check=True
    )

    assert result.stdout == "[]\n"


def test_names_python_threads() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="stray")
    thread.start()
    problems = server_main.unclean()
    end.set()
    thread.join()

    assert re.search(r"Python threads: .*\bstray\b", problems[0])  # the session may have others


def test_lists_the_loaded_files_of_a_package_with_their_times() -> None:
    files = server_main.loaded_files("project")

    assert files[server_main.__file__] == Path(server_main.__file__).stat().st_mtime
    assert all(Path(path).is_relative_to(ROOT / "project") for path in files)
