"""How a run ended, as main sees it."""

from pathlib import Path
from typing import Any

import pytest

from project.common.errors import DataError, DivergedError, StorageError
from project.common.processes.outcome import outcome_of
from project.training.ending import may_succeed_again
from project.training.launch import run
from tests.helpers.refusals import compose_trivial


@pytest.mark.parametrize(
    ("error", "may"),
    [(None, False), (OSError(), True), (StorageError(), True), (DataError(), False), (DivergedError(), False)],
)
def test_only_what_may_go_otherwise_is_tried_again(error: Exception | None, may: bool) -> None:
    assert may_succeed_again(outcome_of(error)) is may


def inline_config(where: Path, **task: str) -> dict[str, Any]:
    config = compose_trivial(
        where, f"paths.cache_dir={where}/cache", "managers.directory.min_free_mb=0", "processes.inline=true"
    )
    config["task"]["run"] = task
    return config


def test_a_run_whose_folder_was_made_anew_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with 0, though all that it had kept was lost."""
    monkeypatch.setenv("PROJECT_ALLOW", "tests.helpers.*")
    monkeypatch.setenv("SPT_NOENV", "1")  # the title of this very process is set
    config = inline_config(tmp_path, _target_="tests.helpers.runs.lose_folder", folder=str(tmp_path / "runs"))

    outcome, _ = run(config)

    assert outcome.exit_code == 1
    assert str(outcome.cause).endswith("the run's folder was removed or replaced while it ran; what was in it is lost")
    assert not list((tmp_path / "runs" / "trivial").rglob("outcome.json"))


LEFT_EARLY = {
    "exit0": (1, "sys.exit(0) was called before the work was done"),
    "interrupt": (130, "KeyboardInterrupt was raised"),
}


@pytest.mark.parametrize(("way", "expected"), LEFT_EARLY.items(), ids=LEFT_EARLY.keys())
def test_an_inline_run_that_was_left_early_has_not_completed_and_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    way: str,
    expected: tuple[int, str],
) -> None:
    """The one ended with 0, the other with 1, and both without a word."""
    monkeypatch.setenv("PROJECT_ALLOW", "tests.helpers.*")
    monkeypatch.setenv("SPT_NOENV", "1")  # the title of this very process is set

    outcome, _ = run(inline_config(tmp_path, _target_="tests.helpers.failing_tasks.end_by", way=way))

    assert (outcome.exit_code, outcome.cause) == expected
    assert capsys.readouterr().err.splitlines()[-1] == f"{outcome.status}: {expected[1]}"


def test_an_outcome_that_cannot_be_written_fails_the_run_and_names_the_folder(
    tmp_path: Path, served: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROJECT_ALLOW", "tests.helpers.*")
    config = compose_trivial(tmp_path, f"paths.cache_dir={tmp_path}/cache", "managers.directory.min_free_mb=0")
    config["task"]["run"] = {"_target_": "tests.helpers.runs.block_outcome", "folder": str(tmp_path / "runs")}

    outcome, _ = run(config)

    (run_dir,) = (tmp_path / "runs" / "trivial").iterdir()
    assert outcome.exit_code == 1
    assert outcome.cause == f"{run_dir}: how the run ended could not be written there (Is a directory)"
