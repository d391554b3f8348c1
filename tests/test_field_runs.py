"""Field cases that take a whole run to show."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from project.training.launch import run
from tests.helpers.runs import PACE, run_folder, started, tiny, wait_for_step
from tests.helpers.training import tiny_config
from tests.helpers.wandb_runs import exit_codes, stored

pytestmark = pytest.mark.slow
HELPERS = "tests.helpers.spoiling"


@pytest.mark.case("46")
@pytest.mark.usefixtures("served")
def test_what_one_run_leaves_set_does_not_reach_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECT_ALLOW", f"{HELPERS}.*")
    config = tiny_config(tmp_path, f"+callbacks.spoil._target_={HELPERS}.Spoil", "trainer.max_epochs=1", "resume=never")
    results: list[Any] = []
    for _ in range(2):
        outcome, result = run(config)
        assert (outcome.exit_code, result is not None) == (0, True)
        results.append(result)
    notes = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("runs/*/*/process_wide.json"))]

    assert len(notes) == 2
    assert notes[0] == notes[1]
    assert notes[0]["variable"] is None
    assert notes[0]["dtype"] == "torch.float32"
    assert results[0]["metrics"] == results[1]["metrics"]


@pytest.mark.case("59")
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_workers_start_after_native_threads_have_worked(tmp_path: Path, method: str) -> None:
    multiply = f"+callbacks.multiply._target_={HELPERS}.Multiply"
    options = ("loader.num_workers=2", "trainer.max_epochs=1", f"processes.start_method={method}", multiply)
    with started(tiny(tmp_path, *options), tmp_path) as tree:
        assert tree.wait(120) == 0, tree.text
        tree.assert_nothing_left()


@pytest.mark.case("71")
def test_ctrl_c_lets_wandb_store_the_last_step_and_end(tmp_path: Path) -> None:
    options = ("managers/wandb=offline", "logger=wandb", "trainer=ddp", "trainer.devices=2")
    with started(tiny(tmp_path, *options), tmp_path, environ={PACE: "0.3"}) as tree:
        wait_for_step(tree, tmp_path, 5)
        tree.signal_group(signal.SIGINT)
        assert tree.wait(11) == 130
        tree.assert_nothing_left(1)

    layout = run_folder(tmp_path)
    last = [json.loads(line)["step"] for line in layout.metrics_history.read_text().splitlines()][-1]
    [records] = stored(layout.run_dir)
    steps = [record.history.step.num for record in records if record.WhichOneof("record_type") == "history"]
    assert steps[-1] == last
    assert exit_codes(layout.run_dir) == [130]
    assert "Traceback" not in tree.text


@pytest.mark.case("55", "54")
@pytest.mark.parametrize("n_workers", [0, 1])
def test_every_option_of_workers_may_stand_there_without_any(tmp_path: Path, n_workers: int) -> None:
    options = (
        "loader.persistent_workers=true",
        "loader.prefetch_factor=8",
        "loader.timeout_s=60",
        "trainer.max_epochs=2",
    )
    command = tiny(tmp_path, *options, f"loader.num_workers={n_workers}", f"loader.num_workers_eval={n_workers}")
    with started(command, tmp_path) as tree:
        assert tree.wait(60) == 0, tree.text

    workers = list(run_folder(tmp_path).processes_dir.glob("*worker0-*.json"))
    # Persistent: one of each loader for both epochs (training, validation), one for testing.
    assert len(workers) == 3 * n_workers
