"""A run whose folder is taken away while it trains."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.runs import run_folder, started, tiny, wait_for_step

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def remove(run_dir: Path) -> None:
    shutil.rmtree(run_dir.rename(run_dir.parent.parent / "moved"))  # at once: the run goes on writing


def replace_by_a_file(run_dir: Path) -> None:
    remove(run_dir)
    run_dir.touch()


@pytest.mark.parametrize("take_away", [remove, replace_by_a_file])
@pytest.mark.parametrize("workers", ["loader.num_workers=0", "loader.num_workers=1"])
def test_a_run_whose_folder_is_gone_ends_and_says_so_once(
    tmp_path: Path, take_away: Callable[[Path], None], workers: str
) -> None:
    """It went on to the end, made parts of its folder anew, and then failed with a traceback."""
    with started(tiny(tmp_path, "trainer.max_epochs=999", workers), tmp_path, environ={"PACE_S": "0.05"}) as tree:
        wait_for_step(tree, tmp_path, 2)
        run_dir = run_folder(tmp_path).run_dir
        take_away(run_dir)
        code = tree.wait(60)
        tree.assert_nothing_left()

    assert code == 1
    lines = tree.text.splitlines()
    assert lines[-1] == (
        f"crashed: {run_dir}: the run's folder was removed or replaced while it ran; what was in it is lost"
    )
    assert sum(str(run_dir) in line for line in lines) == 2, tree.text  # the other one is the first line
    assert "Traceback" not in tree.text
    assert not run_dir.is_dir()
