"""Whatever a task starts ends with its trial, however it was started and the trial ended; nothing else does."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from project.common.processes import process_server, strays
from project.common.processes.child import Child, start_child
from project.common.processes.supervision import Supervisor, end_strays
from tests.helpers import runs
from tests.helpers.processes import handover_for
from tests.helpers.strays import WAYS, kill_left, leave_running, left
from tests.helpers.waiting import until


@pytest.fixture(autouse=True)
def _nothing_survives_a_failed_test(tmp_path: Path) -> Iterator[None]:
    yield
    kill_left(tmp_path)


def run_trial(start_method: str, folder: Path, way: str) -> Child:
    trial = start_child(leave_running, handover_for(start_method, folder), args=(str(folder), way))
    Supervisor([trial]).run()
    return trial


@pytest.mark.parametrize("way", ["return", "raise", "SIGKILL", "SIGTERM"])
def test_whatever_a_trial_started_ends_with_it(
    start_method: str, tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    trial = run_trial(start_method, tmp_path, way)
    before = left(tmp_path)
    end_strays(trial)

    assert set(before) >= {"deaf daemon", "shell"}  # the server binds mere forks to their parent
    assert left(tmp_path) == {}
    assert f"(pid {before['deaf daemon']})" in caplog.text
    assert "the task left running, and it was ended: " in caplog.text


def test_a_mere_fork_that_ends_with_its_process_is_named(tmp_path: Path, served: int) -> None:
    run_trial("forkserver", tmp_path, "return")

    pid = (tmp_path / "fork.pid").read_text()
    assert f"the task left running, and it ends with its process: fork (pid {pid})" in _logs(tmp_path)


def _logs(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("*.log"))


def test_strangers_and_other_trials_live_on(start_method: str, tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        one, other = (run_trial(start_method, folder, "SIGKILL") for folder in folders)
        end_strays(one)

        assert stranger.poll() is None
        assert process_server.pid() is None or process_server.is_running()
        assert {"deaf daemon", "shell"} <= set(left(folders[1]))
        assert "deaf daemon" not in left(folders[0])
        end_strays(other)
    finally:
        stranger.kill()
        stranger.wait(5)
        for folder in folders:
            kill_left(folder)


def test_a_later_process_with_the_pid_of_a_trial_is_a_stranger() -> None:
    leader = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        assert strays.end_trial("/no/such/tree", leader.pid, start_time="1") == []
        assert leader.poll() is None
    finally:
        leader.kill()
        leader.wait(5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start_method", "end"),
    [
        *(("forkserver", end) for end in ("enough", "SIGINT", "SIGKILL", "SIGKILL of the trial", "SIGKILL of all")),
        *(("spawn", end) for end in ("SIGINT", "SIGKILL of all")),
    ],
)
def test_nothing_that_a_task_started_survives_its_run(
    start_method: str, tmp_path: Path, short_folder: Path, end: str
) -> None:
    task = (
        "task.run._target_=tests.helpers.strays.task",
        f"+task.run.folder={tmp_path}",
        "~task.run.steps",
        "~task.run.step_s",
    )
    method = f"processes.start_method={start_method}"
    environ = {"TMPDIR": str(short_folder)}
    with runs.started(runs.trivial(tmp_path, method, *task), tmp_path, environ=environ) as tree:
        until(lambda: (tmp_path / "all").exists() or tree.popen.poll() is not None, 120, what=tree.text)
        started = left(tmp_path)
        _end(tree, tmp_path, end)
        tree.wait()
        survivors = {} if end.startswith("SIGKILL") and end != "SIGKILL of the trial" else left(tmp_path)
        if end == "SIGKILL of all":
            with runs.started(runs.trivial(tmp_path), tmp_path, environ=environ) as following:
                following.wait()
        tree.assert_nothing_left(8.0)

        assert {"deaf daemon", "shell", "subprocess", "without environment"} <= set(started) <= set(WAYS), tree.text
        assert survivors == {}
        assert left(tmp_path) == {}
        assert list(short_folder.iterdir()) == []
        assert "the task left running, and it was ended: " in tree.text or end == "SIGKILL of all"


def _end(tree: runs.Tree, folder: Path, end: str) -> None:
    match end:
        case "enough":
            (folder / "enough").touch()
        case "SIGKILL of the trial":
            (trial,) = tree.titled("project: rank0") - _forks(folder)
            trial.kill()
        case "SIGKILL of all":
            for process in tree.titled("project: reaper"):
                process.kill()
            tree.signal(signal.SIGKILL)
        case _:
            tree.signal(getattr(signal, end))


def _forks(folder: Path) -> set[psutil.Process]:
    return {psutil.Process(pid) for pid in left(folder).values()}
