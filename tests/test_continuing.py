"""A command that was killed goes on, by the same command, and ends as if nothing had happened: to the last bit."""

import json
import os
import random
import signal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from project.common.files.checkpoint_file import load_checkpoint_file
from project.common.files.layout import RunLayout
from tests.helpers.runs import run_folder, started, tiny, wait_for_step
from tests.helpers.training import ProbeCallback, Run, equal, history, tiny_config, train

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("served")]

SETTINGS = ("trainer.val_check_interval=0.5", "callbacks.checkpoint.every_n_steps=2", "processes.threads=1")
# Shuffled, and in buckets of similar length. The uninterrupted ones: one process per rank, no workers, no commands.
EPOCHS, BATCHES = 3, {1: 9, 2: 4, 3: 3}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The uninterrupted training on so many ranks."""

    @cache
    def run(n_ranks: int) -> Run:
        folder = tmp_path_factory.mktemp(f"whole{n_ranks}")
        return train(tiny_config(folder, *SETTINGS, f"trainer.devices={n_ranks}"), folder / "run", world_size=n_ranks)

    return run


def assert_same(layout: RunLayout, whole: Run) -> None:
    """Weights, optimizer, schedule, metrics and their history are equal."""
    one, other = load_checkpoint_file(layout.checkpoint("last")), whole.checkpoint()
    for key in ("state_dict", "optimizer_states", "lr_schedulers", "epoch", "global_step"):
        assert equal(one[key], other[key]), key
    assert json.loads(layout.metrics.read_text()) == whole.record["metrics"]
    assert history(layout) == whole.history()


def ended(command: list[str], folder: Path, **environ: str) -> tuple[int, str]:
    """Exit code and output of a command that is left alone."""
    with started(command, folder, environ=environ) as tree:
        code = tree.wait(240)
        tree.assert_nothing_left(5)
        return code, tree.text


CASES = [(1, 0, "forkserver"), (1, 2, "spawn"), (2, 0, "spawn"), (2, 2, "forkserver"), (3, 0, "forkserver")]


@pytest.mark.case("88")
@pytest.mark.parametrize(("n_ranks", "n_workers", "method"), CASES)
def test_a_killed_command_goes_on_exactly(
    tmp_path: Path, whole: Any, n_ranks: int, n_workers: int, method: str
) -> None:
    chance = random.Random(f"{n_ranks} {n_workers} {method}")
    step, rank = chance.randrange(1, EPOCHS * BATCHES[n_ranks]), chance.randrange(n_ranks)
    sizes = (f"trainer.devices={n_ranks}", f"loader.num_workers={n_workers}", f"processes.start_method={method}")
    probe = (f"+callbacks.probe._target_={ProbeCallback.__module__}.ProbeCallback", "+callbacks.probe.at=batch_end")
    command = tiny(tmp_path, *SETTINGS, *sizes, *probe)

    killed, text = ended(command, tmp_path, PYTHONHASHSEED="1", PROBE=f"rank={rank},step={step},do=kill")
    code, text_again = ended(command, tmp_path, PYTHONHASHSEED="2")

    assert killed == 1, text
    assert "was killed by SIGKILL" in text
    assert code == 0, text_again
    assert text_again.startswith("goes on (attempt 2, found crashed): ")
    assert_same(run_folder(tmp_path), whole(n_ranks))


def test_all_ranks_stop_at_the_same_step_when_one_is_told_to(tmp_path: Path, whole: Any) -> None:
    command = tiny(tmp_path, *SETTINGS, "trainer.devices=2")
    with started(command, tmp_path, environ={"PACE_S": "0.2"}) as tree:
        os.kill(wait_for_step(tree, tmp_path, 1)["rank1"].key.pid, signal.SIGTERM)
        code = tree.wait(20)
        tree.assert_nothing_left(1)
        text = tree.text
    layout = run_folder(tmp_path)
    steps = {r["label"]: r["step"] for r in json.loads(layout.outcome.read_text())["processes"] if "rank" in r["label"]}
    saved = load_checkpoint_file(layout.checkpoint("last"))["global_step"]
    again, text_again = ended(command, tmp_path)

    assert code == 143, text
    assert "Traceback" not in text
    assert 1 <= saved < EPOCHS * BATCHES[2]
    assert steps == {"rank0": saved, "rank1": saved}
    assert again == 0, text_again
    assert_same(layout, whole(2))
