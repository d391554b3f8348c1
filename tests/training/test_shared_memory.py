"""Runs whose batches do not fit into shared memory say so before and when it happens; open files suffice."""

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import runs
from tests.helpers.training import LABELS
from tests.helpers.uneven import Drawn

SMALL = ("bash", "-c", 'mount -t tmpfs -o size=1m shm /dev/shm && exec "$@"', "small")
N_ROWS = 2048


def in_small_shared_memory(command: list[str]) -> list[str]:
    """The command with a /dev/shm of 1 MB that it alone sees."""
    try:
        tried = subprocess.run(["unshare", "-m", *SMALL, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if tried.returncode:
        pytest.skip(f"mount namespaces are not allowed here: {tried.stderr.strip()}")
    return ["unshare", "-m", *SMALL, sys.executable, *command[1:]]


def write_long_rows(folder: Path) -> None:
    """Training batches of 0.5 MB."""
    words = " ".join(f"w{number % 10}" for number in range(70))
    rows = [{"text": f"{LABELS[i % 3]} {words}", "label": LABELS[i % 3]} for i in range(N_ROWS)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="shared memory is a folder on Linux only")
@pytest.mark.parametrize(
    ("method", "n_ranks", "is_streamed"), [("forkserver", 2, False), ("forkserver", 1, True), ("spawn", 1, False)]
)
def test_batches_that_do_not_fit_end_the_run_with_one_message(
    tmp_path: Path, method: str, n_ranks: int, is_streamed: bool
) -> None:
    """The worker's thread dropped what it could not send, and the rank waited for it until it counted as stalled."""
    loader = ("loader.num_workers=2", "loader.num_workers_eval=1", "loader.batch_size=512", "task.data.max_length=64")
    settings = [f"processes.start_method={method}", f"trainer.devices={n_ranks}", *loader]
    if is_streamed:
        node = f"{{_target_:{Drawn.__module__}.Drawn,path:'{tmp_path}/train.jsonl',n_rows:{N_ROWS},more:0}}"
        settings += ["task.scheduler=null", "task.warmup_fraction=null", f"task.data.stream={node}"]
    command = in_small_shared_memory(runs.tiny(tmp_path, *settings))
    write_long_rows(tmp_path)
    with runs.started(command, tmp_path) as tree:
        code = tree.wait(240)
        tree.assert_nothing_left(8.0)

    cause = runs.outcome(runs.run_folder(tmp_path))["cause"]
    n_batches = n_ranks * (3 * 4 + 1)
    assert code == 1, tree.text
    assert ": DataLoader worker " in cause
    assert "(a batch could not be sent: /dev/shm is full, " in cause
    assert len(re.findall(r"shared memory \(/dev/shm\): [\d,.]+ [KM]B are free, batches .* may need ", tree.text)) == 1
    assert f" KB x {n_batches}: prefetch 4 x 3 workers x {n_ranks} ranks" in tree.text
    assert tree.text.count("use fewer loader.num_workers") == 2
    assert "Bus error" not in tree.text


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limits of others are in /proc")
def test_every_process_of_a_tree_may_open_as_many_files_as_the_system_allows(start_method: str, tmp_path: Path) -> None:
    settings = ("loader.num_workers=1", "trainer.max_epochs=1000", f"processes.start_method={start_method}")
    command = [sys.executable, *runs.tiny(tmp_path, *settings)[1:]]
    lowered = ["bash", "-c", f"ulimit -Sn 256 && exec {shlex.join(command)}"]
    with runs.started(lowered, tmp_path, environ={runs.PACE: "0.05"}) as tree:
        runs.wait_for_step(tree, tmp_path)
        processes = tree.processes()
        limits = {" ".join(p.cmdline())[:60]: _file_limits(p.pid) for p in processes}
        tree.signal(signal.SIGINT)
        tree.wait()
        tree.assert_nothing_left()

    assert len(processes) >= 4
    assert {title: soft for title, (soft, hard) in limits.items() if soft != hard} == {}


def _file_limits(pid: int) -> tuple[str, str]:
    (line,) = [line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if line.startswith("Max open")]
    soft, hard = line.split()[3:5]
    return soft, hard
