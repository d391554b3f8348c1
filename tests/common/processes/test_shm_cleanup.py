"""What killed processes left in shared memory is removed by its owner's name, and nobody else's is."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from project.common.files.layout import RunLayout
from project.common.processes import linux, shm_cleanup
from project.common.processes.child import start_child
from project.common.processes.identity import ProcessKey
from project.common.processes.supervision import Supervisor, end_subtree
from tests.helpers import processes
from tests.helpers.processes import handover_for
from tests.helpers.waiting import until

SHM = Path("/dev/shm")


@pytest.fixture
def dead() -> ProcessKey:
    """Key of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait(10)
    return replace(ProcessKey.own(), pid=process.pid, start_time="1")


@pytest.fixture(autouse=True)
def _no_entry_stays() -> Iterator[None]:
    before = set(os.listdir(SHM))
    yield
    for name in set(os.listdir(SHM)) - before:
        if name.startswith(("torch_1_", f"sem.project-{os.getpid()}-")):
            (SHM / name).unlink()


def semaphore(key: ProcessKey, *, main: ProcessKey | None = None) -> Path:
    main = main or key
    path = SHM / f"sem.project-{key.pid}-{key.start_time}-{main.pid}-{main.start_time}-abc"
    path.touch()
    return path


def test_a_later_start_removes_what_the_dead_left_and_nothing_of_the_living(dead: ProcessKey) -> None:
    left, living = semaphore(dead), semaphore(ProcessKey.own())
    segment, strangers = SHM / f"torch_{dead.pid}_123_0", SHM / "torch_1_123_0"
    segment.touch()
    strangers.touch()

    removed = shm_cleanup.remove_stale()

    assert {left.name, segment.name} <= set(removed)
    assert not left.exists()
    assert not segment.exists()
    assert living.exists()
    assert strangers.exists()


def test_a_later_start_leaves_what_died_in_a_tree_that_lives_to_its_main(dead: ProcessKey) -> None:
    """Taken away by another run, it stood as leaked on this one's terminal."""
    left = semaphore(dead, main=ProcessKey.own())

    assert left.name not in shm_cleanup.remove_stale()
    assert shm_cleanup.remove_of(dead) == [left.name]


def test_the_name_of_a_semaphore_says_whose_tree_it_is_of(start_method: str, tmp_path: Path) -> None:
    child = start_child(processes.hold_semaphores, handover_for(start_method, tmp_path), args=(str(tmp_path / "on"),))
    until((tmp_path / "on").exists, 30)
    main = ProcessKey.own()
    held = list(SHM.glob(f"sem.project-{child.process.pid}-*-{main.pid}-{main.start_time}-*"))
    child.kill()
    Supervisor([child]).run()

    assert len(held) == 3


def test_the_living_keep_theirs_when_asked_for_by_key() -> None:
    living = semaphore(ProcessKey.own())

    assert shm_cleanup.remove_of(ProcessKey.own()) == []
    assert living.exists()


def test_semaphores_of_a_killed_child_are_gone_once_its_parent_knows(start_method: str, tmp_path: Path) -> None:
    """They stayed until main ended, which in a sweep is the next morning."""
    child = start_child(processes.hold_semaphores, handover_for(start_method, tmp_path), args=(str(tmp_path / "on"),))
    until((tmp_path / "on").exists, 30)
    pattern = f"sem.project-{child.process.pid}-*"
    held = list(SHM.glob(pattern))
    child.kill()
    Supervisor([child]).run()

    assert len(held) == 3
    assert list(SHM.glob(pattern)) == []


def test_semaphores_of_ranks_below_a_killed_trial_are_gone_with_the_subtree(start_method: str, tmp_path: Path) -> None:
    target = processes.hold_semaphores
    trial = start_child(processes.start_ranks, handover_for(start_method, tmp_path), args=(1, str(tmp_path), target))
    until((tmp_path / "rank0").exists, 60)
    main = ProcessKey.own()
    before = list(SHM.glob(f"sem.project-*-{main.pid}-{main.start_time}-*"))
    trial.kill()
    Supervisor([trial]).run()
    end_subtree(str(tmp_path))

    assert len(before) >= 3
    assert [path for path in before if path.exists()] == []


def test_the_half_of_a_file_that_a_killed_process_wrote_goes_with_its_tree(tmp_path: Path) -> None:
    """It stayed in the folder of an ended run until somebody went on with that."""
    layout = RunLayout(tmp_path)
    layout.make()
    own = layout.run_dir / f"x.json.tmp-{os.getpid()}-{linux.process_start_time(os.getpid())}"
    killed = layout.checkpoints_dir / "last.ckpt.tmp-999999999-1"
    for file in (own, killed):
        file.touch()

    end_subtree(str(tmp_path))

    assert (own.exists(), killed.exists()) == (True, False)
