"""What the kernel knows: exactly one process is meant, and parents' deaths are told."""

import os
import signal
import subprocess
import sys

import psutil

from project.common.processes import linux
from tests.helpers.tree import ROOT
from tests.helpers.waiting import until


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def test_a_start_time_is_a_process_and_a_zombie_is_none() -> None:
    process = sleeper()
    started = linux.process_start_time(process.pid)
    process.kill()
    until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    as_zombie = linux.process_start_time(process.pid)
    process.wait(5)

    assert started is not None
    assert as_zombie is None
    assert linux.process_start_time(process.pid) is None


def test_kills_exactly_the_process_that_is_meant() -> None:
    process = sleeper()
    started = linux.process_start_time(process.pid) or ""

    assert not linux.kill_process(process.pid, "1")
    assert process.poll() is None
    assert linux.kill_process(process.pid, started)
    assert process.wait(5) == -signal.SIGKILL
    assert not linux.kill_process(process.pid, started)


def test_works_without_pidfds(monkeypatch: object) -> None:
    process = sleeper()
    started = linux.process_start_time(process.pid) or ""
    pidfd_open = os.pidfd_open
    del os.pidfd_open
    try:
        refused, granted = linux.kill_process(process.pid, "1"), linux.kill_process(process.pid, started)
    finally:
        os.pidfd_open = pidfd_open

    assert (refused, granted, process.wait(5)) == (False, True, -signal.SIGKILL)


PARENT = """
import subprocess, sys, time
child = '''
import time
from project.common.processes import linux
linux.die_with_parent()
%s
print("ready", flush=True)
time.sleep(600)
'''
process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
process.stdout.readline()
print(process.pid, flush=True)
time.sleep(600)
"""


def child_after_its_parents_death(body: str) -> psutil.Process:
    parent = subprocess.Popen([sys.executable, "-c", PARENT % body], stdout=subprocess.PIPE, cwd=ROOT)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait(5)
    parent.stdout.close()
    return child


def test_dies_with_its_parent() -> None:
    child = child_after_its_parents_death("")

    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 1)


def test_may_outlive_its_parent_for_a_while() -> None:
    child = child_after_its_parents_death("kept = linux.outliving_parent(); kept.__enter__()")
    alive = child.is_running() and child.status() != psutil.STATUS_ZOMBIE
    child.kill()

    assert alive


def test_the_kernels_wish_is_back_after_that_while() -> None:
    child = child_after_its_parents_death("with linux.outliving_parent(): pass")

    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 1)
