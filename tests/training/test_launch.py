"""Main's part: how processes start, what is recorded of it, and when a crashed trial is started again."""

import json
import logging
import signal
from pathlib import Path
from typing import Any

import pytest

from project.common.process_registry import read_run
from project.common.processes import process_server
from project.common.processes.identity import Role
from project.training.launch import run
from tests.helpers.runs import started
from tests.helpers.runs import trivial as trivial_command
from tests.helpers.training import compose, tiny_config, with_probe
from tests.helpers.waiting import until

pytestmark = pytest.mark.usefixtures("served")


def trivial(folder: Path, *overrides: str) -> dict[str, Any]:
    places = (f"paths.runs_dir={folder}/runs", f"paths.cache_dir={folder}/cache", "managers.directory.min_free_mb=0")
    return compose("+experiment=trivial", "managers/wandb=disabled", "logger=none", *places, *overrides)


def failing(folder: Path, *overrides: str) -> dict[str, Any]:
    """A task that succeeds at the third try."""
    config = trivial(folder, *overrides)
    config["task"]["run"] = {"_target_": "tests.helpers.runs.fail_twice", "folder": str(folder)}
    return config


def run_dir_in(folder: Path) -> Path:
    (only,) = (folder / "runs" / "trivial").iterdir()
    return only


def trial_records(folder: Path) -> list[Any]:
    """Processes that were started as trials; each turned into rank 0 of 1."""
    return [record for record in read_run(run_dir_in(folder)) if record.identity.role is Role.RANK]


@pytest.mark.slow
def test_a_fallback_is_one_warning_and_stands_in_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_server, "is_possible", lambda: "this system cannot fork")
    caplog.set_level(logging.WARNING)

    outcome, _ = run(trivial(tmp_path))

    end = json.loads((run_dir_in(tmp_path) / "outcome.json").read_text())
    warnings = [r.getMessage() for r in caplog.records if "spawn is used" in r.getMessage()]
    assert outcome.exit_code == 0
    assert (end["start_method"], end["fallback"]) == ("spawn", "this system cannot fork")
    assert len(warnings) == 1
    assert "this system cannot fork" in warnings[0]


@pytest.mark.slow
def test_variables_that_are_read_at_import_make_a_trial_spawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    caplog.set_level(logging.WARNING)

    outcome, _ = run(trivial(tmp_path))

    said = [r.getMessage() for r in caplog.records if "HF_HUB_OFFLINE differ from" in r.getMessage()]
    assert outcome.exit_code == 0
    assert len(said) == 1
    assert [record.start_method for record in trial_records(tmp_path)] == ["spawn"]


def test_a_crashed_trial_is_started_again_as_often_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PROJECT_ALLOW", "tests.helpers.*")
    caplog.set_level(logging.WARNING)
    outcome, result = run(failing(tmp_path, "processes.max_restarts=2", "processes.restart_wait_s=0.1"))

    assert outcome.exit_code == 0
    assert result is not None
    assert result["metrics"] == {"tries": 3.0}
    assert [record.identity.attempt for record in trial_records(tmp_path)] == [1, 2, 3]
    said = [r.getMessage() for r in caplog.records if "restarted" in r.getMessage()]
    assert said == [
        f"OSError: try {attempt}; restarted from its last checkpoint in {wait} s"
        for attempt, wait in ((1, 0.1), (2, 0.2))
    ]


def test_a_stop_ends_the_wait_before_a_restart(tmp_path: Path) -> None:
    command = trivial_command(
        tmp_path,
        "~task.run",
        f"+task.run={{_target_:tests.helpers.runs.fail_twice,folder:'{tmp_path}'}}",
        "processes.max_restarts=1",
        "processes.restart_wait_s=600",
    )
    with started(command, tmp_path) as tree:
        until(lambda: "in 600 s" in tree.text, 60, what="the wait")
        tree.signal(signal.SIGTERM)
        code = tree.wait(10)
        tree.assert_nothing_left(1)

    assert code == 143, tree.text
    assert "interrupted: SIGTERM before the restart after: OSError: try 1" in tree.text


def test_a_crashed_trial_is_not_started_again_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECT_ALLOW", "tests.helpers.*")
    outcome, _ = run(failing(tmp_path))

    assert outcome.exit_code == 1
    assert outcome.cause == "OSError: try 1"
    assert len(trial_records(tmp_path)) == 1


def test_an_error_in_main_itself_ends_the_tree_in_order_and_is_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Main's record once said no more than that of a killed one, and the semaphores of its tree were left."""

    def fail(run: Any, child: Any, kind: str, data: Any) -> None:
        raise RuntimeError("in main")

    monkeypatch.setattr("project.training.launch._Run._on_message", fail)

    with pytest.raises(RuntimeError, match="in main"):
        run(trivial(tmp_path))

    end = json.loads((run_dir_in(tmp_path) / "outcome.json").read_text())
    assert (end["status"], end["exception"], end["cause"]) == ("crashed", "RuntimeError", "RuntimeError: in main")
    (trial,) = trial_records(tmp_path)
    assert not trial.key.is_alive()
    assert trial.outcome is not None


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_rank_is_the_cause_whichever_rank_ends_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """The other rank stops because they agreed to, and its outcome once stood for the run's."""
    monkeypatch.setenv("PROJECT_ALLOW", "tests.helpers.*")
    monkeypatch.setenv("PROBE", f"rank={rank},step=3,do=term")

    outcome, _ = run(with_probe(tiny_config(tmp_path, "logger=none", "trainer.devices=2"), "batch_end"))

    assert (outcome.exit_code, outcome.status) == (143, "interrupted")
    assert outcome.cause is not None
    assert f"rank{rank} received SIGTERM" in outcome.cause
