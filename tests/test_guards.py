"""The guards of conftest.py: each fails a test that leaks, and lets one pass that does not."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import shared_memory
from pathlib import Path

import psutil
import pytest

from project.common import live_runs
from project.common.processes import handover, stop
from project.common.processes.identity import Identity, Role, set_identity
from tests.helpers import guards, tree
from tests.helpers.waiting import until


@contextmanager
def _process() -> Iterator[None]:
    popen = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield
    popen.communicate(b"\n", timeout=10)


@contextmanager
def _thread() -> Iterator[None]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    yield
    end.set()
    thread.join()


@contextmanager
def _descriptor() -> Iterator[None]:
    fd = os.open("/dev/null", os.O_RDONLY)
    yield
    os.close(fd)


@contextmanager
def _variable() -> Iterator[None]:
    os.environ["LEFT"] = "1"
    yield
    del os.environ["LEFT"]


@contextmanager
def _removed_variable() -> Iterator[None]:
    value = os.environ.pop("XDG_STATE_HOME")
    yield
    os.environ["XDG_STATE_HOME"] = value


@contextmanager
def _handler() -> Iterator[None]:
    previous = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGUSR1, previous)


@contextmanager
def _shared_memory() -> Iterator[None]:
    segment = shared_memory.SharedMemory(create=True, size=16)
    yield
    segment.close()
    segment.unlink()


@contextmanager
def _state_file() -> Iterator[None]:
    path = live_runs.state_dir() / "runs" / "left.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    yield
    path.unlink()


@contextmanager
def _stop_request() -> Iterator[None]:
    stop.request_stop(stop.StopRequest(reason="test", exit_code=1, deadline=time.monotonic() + 60))
    yield
    stop.forget_stop_request()


@contextmanager
def _identity() -> Iterator[None]:
    set_identity(Identity(role=Role.MAIN))
    yield
    set_identity(None)


@contextmanager
def _shared_identity() -> Iterator[None]:
    handover.share_identity(Identity(role=Role.MAIN))
    yield
    handover.share_identity(None)


@contextmanager
def _log_handler() -> Iterator[None]:
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)


@contextmanager
def _log_level() -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    root.setLevel(1)
    yield
    root.setLevel(level)


LEAKS = {
    "process ": _process,
    "thread ": _thread,
    "descriptor ": _descriptor,
    "environment variable LEFT": _variable,
    "XDG_STATE_HOME": _removed_variable,
    "signal handler SIGUSR1": _handler,
    "/dev/shm/psm_": _shared_memory,
    "state file ": _state_file,
    "stop request ": _stop_request,
    "identity ": _identity,
    "shared identity ": _shared_identity,
    "handler <NullHandler": _log_handler,
    "level 1 of logger root": _log_level,
}


@pytest.mark.parametrize("words", LEAKS)
def test_names_what_is_left_and_is_content_once_it_is_gone(words: str) -> None:
    before = guards.look()

    with LEAKS[words]():
        left = guards.leaks(before, settle_s=0)

    assert any(words in text for text in left)
    assert guards.leaks(before) == []


def test_sees_a_process_whose_parent_is_gone() -> None:
    before = guards.look()
    quiet = "[sys.executable, '-c', 'import time; time.sleep(60)'], stdout=-3, stderr=-3"
    code = f"import subprocess, sys; print(subprocess.Popen({quiet}).pid)"
    pid = int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=30).stdout)

    left = guards.leaks(before, settle_s=0)

    assert any(f"process {pid} " in text for text in left)
    tree.kill_all({psutil.Process(pid)})


def test_fails_the_test_that_leaks_and_spares_the_next(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", str(root))
    pytester.makeini("[pytest]")
    pytester.makeconftest((root / "tests" / "conftest.py").read_text().replace('pytest_plugins = ["pytester"]', ""))
    pytester.makepyfile(
        """
        import subprocess, sys

        def test_leaves_a_process():
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

        def test_leaves_nothing():
            pass
        """
    )

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=60)

    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*the test left behind:*", "*process * -c import time*"])
    until(lambda: not any("time.sleep(60)" in text for text in guards.processes().values()))
