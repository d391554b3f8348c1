"""ensure_process_initialized in children that a user starts, by each start method, and in forks."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import project
from project.common import managers, process_state
from project.common.errors import ConfigError, NotInitializedError
from project.common.managers.process_init import ensure_process_initialized
from project.common.processes.identity import Identity, Role, current_identity, set_identity
from project.common.whitelist import ALLOW_VARIABLE
from tests.helpers import managers as doubles
from tests.helpers.managers import config_of

DEADLINE_S = 60
REPOSITORY = Path(project.__file__).parent.parent
CONFIG = config_of("roof", "house", "ground", ground={"depth": 3})


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(ALLOW_VARIABLE, doubles.ALLOWED)
    yield
    managers.cleanup_managers()
    set_identity(None)


def in_child(method: str, target: Callable[..., None], *arguments: Any) -> Any:
    """Returns what a child of the user's own `multiprocessing` answers."""
    context: Any = multiprocessing.get_context(method)
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(there, *arguments))
    process.start()
    there.close()
    try:
        assert here.poll(DEADLINE_S), "the child did not answer"
        return here.recv()
    finally:
        process.join(DEADLINE_S)
        here.close()
        assert process.exitcode == 0


def test_a_users_child_becomes_a_worker_with_managers_of_its_own(start_method: str) -> None:
    assert in_child(start_method, doubles.use_as_worker, CONFIG) == ("worker", 3)


def test_a_users_child_of_an_initialised_script_works_too(start_method: str) -> None:
    managers.initialize_factory(CONFIG)
    managers.get_manager("roof")

    assert in_child(start_method, doubles.use_as_worker, CONFIG) == ("worker", 3)


def test_a_child_that_forgot_it_is_told_the_call(start_method: str) -> None:
    text = in_child(start_method, doubles.use_too_early)

    assert text.startswith("NotInitializedError: managers.house: asked for in ")
    assert "ensure_process_initialized(config) is missing here" in text


def test_a_child_may_say_its_role() -> None:
    assert in_child("spawn", doubles.use_as_rank, CONFIG) == "rank"


def test_a_child_keeps_the_identity_that_its_entry_gave() -> None:
    assert in_child("spawn", doubles.use_handed_identity, CONFIG) == "rank1-worker3"


def test_after_initialize_factory_the_same_configuration_is_no_second_start() -> None:
    managers.initialize_factory(CONFIG)
    ensure_process_initialized(CONFIG)

    identity = current_identity()
    assert identity is not None
    assert identity.role == Role.RANK


def test_another_configuration_is_refused() -> None:
    ensure_process_initialized(CONFIG)

    with pytest.raises(ConfigError, match=r"managers\.ground\.depth: 1, not 3"):
        ensure_process_initialized(config_of("roof", "house", "ground", ground={"depth": 1}))


def test_without_a_configuration_and_none_handed_over_it_says_so() -> None:
    with pytest.raises(NotInitializedError, match="was handed no configuration; call it with one"):
        ensure_process_initialized()


@pytest.mark.parametrize("has_managers", [True, False])
def test_a_users_fork_of_a_rank_becomes_its_worker(has_managers: bool) -> None:
    set_identity(Identity(role=Role.RANK, rank=1, world_size=2))
    if has_managers:
        managers.initialize_factory(CONFIG)
        managers.get_manager("roof")

    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ensure_process_initialized(CONFIG)
            ensure_process_initialized(CONFIG)
            ground = managers.get_manager("ground")
            os.write(write_end, f"{ground.identity.label} {ground.depth} {ground.pid == os.getpid()}".encode())
        except Exception as error:  # noqa: BLE001 - sent to the parent, which asserts on it
            os.write(write_end, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as pipe:
        assert pipe.read() == "rank1-worker0 3 True"


@pytest.mark.case("52")
@pytest.mark.parametrize("has_device", [True, False])
def test_a_fork_of_a_process_that_had_started_cuda_is_refused(has_device: bool) -> None:
    """There is no CUDA here, so the answers of torch and of the kernel are set; what we make of them is real."""
    torch = pytest.importorskip("torch")
    managers.initialize_factory(CONFIG)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        torch.cuda._is_in_bad_fork = lambda: True
        process_state.has_device_file_open = lambda: has_device
        try:
            ensure_process_initialized(CONFIG)
        except Exception as error:  # noqa: BLE001 - sent to the parent, which asserts on it
            os.write(write_end, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()

    if has_device:
        assert text.startswith(f"ProcessBoundaryError: pid {child}: is a fork of rank0")
        assert "spawn or forkserver" in text
    else:
        assert text == "", "a build for CUDA that was only asked whether there is a device"


SCRIPT = """
import multiprocessing, sys
from project.common.managers import cleanup_managers, get_directory_manager, initialize_factory
from project.common.managers.process_init import ensure_process_initialized

target = "project.common.managers.directory.DirectoryManager"
config = {"managers": {"directory": {"_target_": target, "name": "script", "runs_dir": sys.argv[1]}}}

def child():
    ensure_process_initialized(config)
    print("child", get_directory_manager().run_dir, flush=True)
    cleanup_managers()

if __name__ == "__main__":
    initialize_factory(config)
    print("owner", get_directory_manager().run_dir, flush=True)
    process = multiprocessing.get_context(sys.argv[2]).Process(target=child)
    process.start()
    process.join(60)
    cleanup_managers()
    sys.exit(process.exitcode)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_plain_script_and_its_child_share_the_run_folder(method: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "runs"), method]
    environ = os.environ | {"PYTHONPATH": str(REPOSITORY)}

    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=environ, check=False)

    assert done.returncode == 0, done.stderr
    said = dict(line.split() for line in done.stdout.splitlines())
    assert said["child"] == said["owner"]
    assert [str(folder) for folder in (tmp_path / "runs" / "script").iterdir()] == [said["owner"]]


def test_a_notebook_starts_children_and_starts_again() -> None:
    """A notebook's main module has no file; its cells run one after another in one process."""
    cells = f"""
import multiprocessing, threading
from project.common import managers
from project.common.whitelist import allow_targets
from tests.helpers import managers as doubles
allow_targets(doubles.ALLOWED)
for depth in (3, 4):
    config = doubles.config_of("house", "ground", ground={{"depth": depth}})
    managers.initialize_factory(config)
    here, there = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("spawn").Process(target=doubles.use_as_worker, args=(there, config))
    child.start()
    print(here.poll({DEADLINE_S} / 4) and here.recv())
    child.join({DEADLINE_S})
    thread = threading.Thread(target=lambda: print(managers.get_manager("ground").depth))
    thread.start()
    thread.join({DEADLINE_S})
    managers.cleanup_managers()
"""
    command = [sys.executable, "-c", cells]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=REPOSITORY, check=False)

    assert done.stdout.splitlines() == ["('worker', 3)", "3", "('worker', 4)", "4"], done.stderr
