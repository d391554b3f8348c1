"""A process that is stopped (SIGSTOP) cannot end in order: one Ctrl-C ends the tree all the same."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from project.common.process_registry import read_run
from tests.helpers import runs

LIMIT_S = 6.0  # what `processes.deadline_s` promises
BUSY_S = 3.0  # for a busy machine to notice


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="records say when a process ended, /proc whether")
@pytest.mark.parametrize(
    ("method", "label"),
    [("forkserver", "rank1-worker0"), ("spawn", "rank1-worker0"), ("forkserver", "rank1"), ("forkserver", "trial")],
)
def test_one_sigint_ends_a_tree_in_which_a_process_is_stopped(tmp_path: Path, method: str, label: str) -> None:
    settings = ("trainer.devices=2", "loader.num_workers=1", "trainer.max_epochs=1000", "task.test=false")
    command = runs.tiny(tmp_path, *settings, f"processes.start_method={method}", f"processes.deadline_s={LIMIT_S}")
    with runs.started(command, tmp_path, environ={runs.PACE: "0.2"}) as tree:
        records = runs.wait_for_step(tree, tmp_path, 2)
        stopped = records[label].key.pid
        os.kill(stopped, signal.SIGSTOP)
        began = time.monotonic()
        tree.signal(signal.SIGINT)
        code = tree.wait(60)
        tree.assert_nothing_left(LIMIT_S)
        took = time.monotonic() - began

    run_dir = runs.run_folder(tmp_path).run_dir
    assert code == 130, tree.text
    assert took < LIMIT_S + BUSY_S, tree.text
    assert method == "spawn" or f"{label} (pid {stopped})" in tree.text  # a spawned worker goes with its rank, unsaid
    assert not any(record.key.is_alive() for record in read_run(run_dir))


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's word for a stopped process is in /proc")
def test_a_stopped_server_that_nobody_lets_go_on_ends_the_run_and_is_named(tmp_path: Path) -> None:
    command = runs.trivial(tmp_path, "task.run.steps=100000", "processes.stall_timeout_s=2")
    with runs.started(command, tmp_path) as tree:
        runs.wait_for_step(tree, tmp_path)
        (server,) = tree.titled("project: server")
        server.suspend()
        code = tree.wait(30)
        tree.assert_nothing_left(1)

    assert code == 1, tree.text
    assert f"crashed: server (pid {server.pid}) was stopped (SIGSTOP) for " in tree.text.splitlines()[-1]
