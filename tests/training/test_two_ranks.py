"""Two ranks are one job: one failing is the end of all with its cause, where they meet is theirs, the result is one."""

import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from project.training.launch import run
from tests.helpers.training import tiny_config, train, with_probe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("served")]

# What rank 1 does at step 3, and what is said of it.
FAILURES = {
    "raise": "rank1 (pid {pid}): ProbeError: the probe raised",
    "kill": "rank1 (pid {pid}) was killed by SIGKILL",
    "exit": "rank1 (pid {pid}) exited with 3",
    "sleep": "rank1 (pid {pid}) made no step for",
}


@pytest.mark.case("11")
@pytest.mark.parametrize("action", FAILURES)
def test_a_rank_that_fails_or_stalls_ends_the_run_with_its_name_and_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setenv("PROJECT_ALLOW", "tests.helpers.*")
    monkeypatch.setenv("PROBE", f"rank=1,step=3,do={action}")
    config = tiny_config(tmp_path, "logger=none", "trainer.devices=2", "processes.stall_timeout_s=4")

    outcome, result = run(with_probe(config, "batch_end"))

    assert outcome.exit_code == 1
    assert result is None
    assert outcome.cause is not None
    before, _, after = FAILURES[action].partition("{pid}")
    assert re.search(rf"{re.escape(before)}\d+{re.escape(after)}", outcome.cause), outcome.cause


@pytest.mark.case("85")
def test_jobs_at_once_need_no_port_whatever_the_shell_says(tmp_path: Path) -> None:
    """Another program listens where the variables point to."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        environ = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1])}
        config = tiny_config(tmp_path, "trainer.devices=2", "trainer.max_steps=2", "task.test=false")

        def job(number: int) -> Any:
            given = environ if number % 2 else {}
            return train(config, tmp_path / str(number), world_size=2, environ=given, limit_s=100)

        with ThreadPoolExecutor(4) as pool:
            runs = list(pool.map(job, range(4)))

    assert [run.exit_codes for run in runs] == [[0, 0]] * 4
    assert len({str(run.record["metrics"]) for run in runs}) == 1


@pytest.mark.case("86")
def test_main_gets_the_same_record_from_one_device_and_from_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = {}
    for n_ranks in (1, 2):
        overrides = (f"trainer.devices={n_ranks}", "callbacks=early_stopping", "callbacks.early_stopping.patience=1")
        outcome, result = run(tiny_config(tmp_path, "logger=none", "task.optimizer.lr=0", *overrides))
        assert outcome.exit_code == 0
        assert result is not None
        records[n_ranks] = result

    one, two = records[1], records[2]
    assert one.keys() == two.keys()
    assert one["metrics"] == pytest.approx(two["metrics"], abs=0.5)
    assert one["metrics"].keys() == two["metrics"].keys()
    for record in (one, two):
        assert record["stop_reason"] == "val/acc stopped improving"
        assert record["epoch"] == 2
        assert Path(record["best_checkpoint"]).is_file()
        assert Path(record["last_checkpoint"]).is_file()
