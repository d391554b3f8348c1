"""The public interface in a notebook's kernel: cells run one after another in a process that lives on."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel
from jupyter_core.utils import ensure_event_loop

from tests.helpers.training import ROOT
from tests.helpers.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
CELL_S = 90.0

MANAGERS = """
    from pathlib import Path
    from project.common import managers
    from tests.helpers.training import tiny_config
    config = tiny_config(Path("."), "paths.runs_dir=runs", "paths.cache_dir=cache")
    managers.initialize_factory(config)
    managers.initialize_factory(config)  # the cell is run a second time
    managers.get_data_manager().prepare()
    rows = managers.get_data_manager().n_rows("train")
    checked = [name for name in ("cuda", "tensor", "model", "amp") if managers.get_manager(name).check().ok]
"""
CHILD = """
    import multiprocessing
    from tests.helpers.processes import put_data_rows
    context = multiprocessing.get_context({method!r})
    queue = context.SimpleQueue()
    child = context.Process(target=put_data_rows, args=(queue, config))
    child.start()
    child.join(60)
    answer = child.exitcode == 0 and queue.get()
    queue.close()
    del queue, child
"""
RUN = """
    from pathlib import Path
    from project.training.launch import run
    from tests.test_public_api import trivial
    outcome, result = run(trivial(Path("."), {overrides}))
"""


class Kernel:
    """A kernel in a folder of its own, which runs cells and is watched from outside."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self.client = manager, client
        self.process = psutil.Process(manager.provisioner.pid)

    def cell(self, text: str, **expressions: str) -> dict[str, str]:
        """Runs a cell; returns what the expressions are afterwards, as repr."""
        printed: list[str] = []
        reply = self.client.execute_interactive(
            textwrap.dedent(text),
            user_expressions=expressions,
            timeout=CELL_S,
            output_hook=lambda message: printed.append(str(message["content"])),
        )["content"]
        assert reply["status"] == "ok", "\n".join([*reply.get("traceback", []), *printed])
        values: dict[str, Any] = reply["user_expressions"]
        return {name: value["data"]["text/plain"] for name, value in values.items()}

    def children(self) -> list[psutil.Process]:
        return self.process.children(recursive=True)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PROJECT_ALLOW", "tests.helpers.*")
    manager, client = start_new_kernel(startup_timeout=CELL_S, kernel_name="python3", cwd=str(tmp_path))
    found = Kernel(manager, client)
    below: list[psutil.Process] = []
    try:
        yield found
        below = found.children() if found.process.is_running() else []
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=False)
        manager.context.destroy()
        ensure_event_loop().close()
    _, alive = psutil.wait_procs(below, timeout=10)
    assert not alive, "the kernel is gone, and these are not"


def test_all_managers_and_children_of_both_kinds(kernel: Kernel) -> None:
    said = kernel.cell(MANAGERS, rows="rows", checked="checked")
    assert said == {"rows": "34", "checked": "['cuda', 'tensor', 'model', 'amp']"}
    for method in ("spawn", "forkserver"):
        assert kernel.cell(CHILD.format(method=method), answer="answer") == {"answer": "('worker', 34)"}
    kernel.cell("managers.clear_memory(); managers.cleanup_managers(); managers.cleanup_managers()")
    until(lambda: not _of_ours(kernel), 10, what="the children of the cells to be gone")


def test_runs_follow_each_other_and_an_interrupted_one_goes_on(kernel: Kernel, tmp_path: Path) -> None:
    kernel.cell(RUN.format(overrides='"processes.inline=true"'))
    assert kernel.cell("pass", code="outcome.exit_code") == {"code": "0"}

    kernel.client.execute(textwrap.dedent(RUN.format(overrides='"name=long", "task.run.steps=2000"')))
    until(lambda: list(tmp_path.glob("runs/long/*/metrics.jsonl")), CELL_S, what="the run's first step")
    kernel.manager.interrupt_kernel()
    assert kernel.cell("pass", status="str(outcome.status)") == {"status": "'interrupted'"}

    kernel.cell(RUN.format(overrides='"resume=never"'))
    assert kernel.cell("pass", code="outcome.exit_code", steps="result['step']") == {"code": "0", "steps": "3"}


def test_a_killed_kernel_leaves_nothing(kernel: Kernel, tmp_path: Path) -> None:
    kernel.client.execute(textwrap.dedent(RUN.format(overrides='"name=long", "task.run.steps=2000"')))
    until(lambda: list(tmp_path.glob("runs/long/*/metrics.jsonl")), CELL_S, what="the run's first step")
    below = kernel.children()

    kernel.process.kill()

    _, alive = psutil.wait_procs(below, timeout=5)
    assert below
    assert not alive


def _of_ours(kernel: Kernel) -> list[psutil.Process]:
    """Living children that the kernel did not have before: all but Python's own helpers for start methods."""
    helpers = ("forkserver", "resource_tracker")
    return [p for p in kernel.children() if not any(helper in " ".join(p.cmdline()) for helper in helpers)]
