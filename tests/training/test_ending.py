"""How a run ended, as main sees it."""

from pathlib import Path

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
