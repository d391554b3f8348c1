"""The program used as a library: from scripts, prompts, threads, and several times in one process."""

import multiprocessing
import os
import signal
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from project.common.processes import stop
from project.common.processes.handover import inherited_identity
from project.common.processes.identity import current_identity
from project.training.launch import run
from tests.helpers.processes import put_inherited
from tests.helpers.runs import started
from tests.helpers.training import ROOT, compose


def trivial(folder: Path, *overrides: str) -> dict[str, Any]:
    places = (f"paths.runs_dir={folder}/runs", f"paths.cache_dir={folder}/cache", "managers.directory.min_free_mb=0")
    return compose("+experiment=trivial", "managers/wandb=disabled", "logger=none", *places, *overrides)


@pytest.mark.usefixtures("served")
def test_several_runs_in_one_process_know_nothing_of_each_other(tmp_path: Path) -> None:
    first, first_result = run(trivial(tmp_path, "resume=never"))
    second, second_result = run(trivial(tmp_path, "resume=never", "task.run.steps=5"))

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first_result is not None
    assert second_result is not None
    assert (first_result["step"], second_result["step"]) == (3, 5)
    assert len(list((tmp_path / "runs" / "trivial").iterdir())) == 2
    assert current_identity() is None


@pytest.mark.usefixtures("served")
def test_a_child_of_a_user_after_a_run_does_not_belong_to_it(tmp_path: Path) -> None:
    run(trivial(tmp_path))
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    child = context.Process(target=put_inherited, args=(queue,))
    child.start()
    child.join(60)

    assert queue.get()["identity"] is None
    assert inherited_identity() is None
    queue.close()
    child.close()


@pytest.mark.usefixtures("served")
def test_a_run_may_be_started_from_a_thread(tmp_path: Path) -> None:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(run(trivial(tmp_path))))
    thread.start()
    thread.join(60)

    assert not thread.is_alive()
    ((outcome, result),) = results
    assert outcome.exit_code == 0
    assert result["metrics"]["loss"] == pytest.approx(1 / 3)


@pytest.mark.usefixtures("served")
def test_a_run_from_a_prompt_is_interrupted_and_the_next_one_works(tmp_path: Path) -> None:
    def interrupt() -> None:
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob("runs/*/*/metrics.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread = threading.Thread(target=interrupt)
        thread.start()
        interrupted, _ = run(trivial(tmp_path, "task.run.steps=5000"))
        thread.join(30)
        assert stop.stop_request() is None
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        following, _ = run(trivial(tmp_path, "resume=never"))
    finally:
        signal.signal(signal.SIGINT, before)

    assert (str(interrupted.status), interrupted.exit_code) == ("interrupted", 130)
    assert following.exit_code == 0


MANAGERS = ("directory", "cuda", "tensor", "tokenizer", "data", "batch", "model", "amp", "metrics", "wandb")
LIBRARY = """
    from pathlib import Path
    from project.common import managers
    from tests.helpers.training import tiny_config
    config = tiny_config(Path("."), "paths.runs_dir=runs", "paths.cache_dir=cache")
    managers.initialize_factory(config)
    names = {names!r}
    found = [getattr(managers, f"get_{{name}}_manager")() for name in names]
    managers.get_data_manager().prepare()
    print("ROWS", managers.get_data_manager().n_rows("train"))
    print("CHECKED", [manager.name for manager in found if manager.check().ok])
    managers.clear_memory()
    managers.cleanup_managers()
    managers.cleanup_managers()
"""
PROMPT = """
    import code
    prompt = code.InteractiveConsole({{"__name__": "__main__", "__doc__": None}})
    for line in {lines!r}:
        prompt.push(line)
    print("TYPED")
"""


def script(text: str, **values: Any) -> str:
    return textwrap.dedent(text).format(**values)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["script", "prompt"])
def test_all_managers_work_without_train_py(tmp_path: Path, place: str) -> None:
    text = script(LIBRARY, names=MANAGERS)
    if place == "prompt":
        text = script(PROMPT, lines=text.splitlines())
    with started(["python", "-c", text], tmp_path, environ={"PYTHONPATH": str(ROOT)}) as tree:
        code = tree.wait(90)
        tree.assert_nothing_left()

    assert code == 0, tree.text
    assert f"CHECKED {list(MANAGERS)}" in tree.text
    assert "ROWS 34" in tree.text


RUN = """
    from project.training.launch import run
    from tests.test_public_api import trivial
    from pathlib import Path
    outcome, result = run(trivial(Path(".")))
    print("ENDED", outcome.status, result["step"])
"""


@pytest.mark.slow
def test_a_prompt_can_start_runs_and_its_server_ends_with_it(tmp_path: Path) -> None:
    lines = [line for line in script(RUN).splitlines() if line] * 2
    with started(["python", "-c", script(PROMPT, lines=lines)], tmp_path, environ={"PYTHONPATH": str(ROOT)}) as tree:
        code = tree.wait(90)
        tree.assert_nothing_left()

    assert code == 0, tree.text
    assert tree.text.count("ENDED completed 3") == 2
    assert "TYPED" in tree.text
