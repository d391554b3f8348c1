"""Runs one cell: the real program, one event, and then everything that must hold."""

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.chaos import cgroup, checks
from tests.chaos.cells import Cell
from tests.helpers.training import ROOT, TINY, with_task
from tests.helpers.tree import Tree, running
from tests.helpers.waiting import until

PLACE_S = 120.0  # until the victim is where it shall be: a start under spawn on a busy machine
END_S = 150.0  # of a run that goes on to its end
LOOKING_S = 1.0  # between an end and our noticing it, on a busy machine
LATER_S = 1.0  # until a person reacts to a hang
STALL_S = {"forkserver": 3.0, "spawn": 20.0}
SAVING = "callbacks.checkpoint.every_n_steps=2"
INJECT = Path(__file__).with_name("inject")


@dataclass(kw_only=True)
class Result:
    """How a cell ended.

    Args:
        cell: Which.
        start_method: `forkserver` or `spawn`.
        faults: What did not hold; empty when it passed.
        seconds: From the event to the end of the last process; None if there was no event.
        is_run: False where this machine cannot do it.
    """

    cell: Cell
    start_method: str
    faults: list[str] = field(default_factory=list)
    seconds: float | None = None
    is_run: bool = True


def command(folder: Path, data: Path, start_method: str, cell: Cell | None) -> list[str]:
    """The command line of a training of two ranks with a worker each."""
    files = ",".join(f"{split}:'{data / split}.jsonl'" for split in ("train", "val", "test"))
    places = (f"paths.runs_dir={folder}/runs", f"paths.cache_dir={data}/cache", f"task.data.files={{{files}}}")
    shape = ("trainer.devices=2", "loader.num_workers=1", "trainer.max_epochs=2", SAVING)
    more = ["loader.num_workers_eval=1", f"processes.start_method={start_method}"]
    more.append("logger=none" if cell is None or cell.victim != "wandb-core" else "logger=wandb")
    if cell is not None and cell.is_stall:
        more.append(f"processes.stall_timeout_s={STALL_S[start_method]}")
    if cell is not None and cell.victim == "wandb-core":
        more += ["managers/wandb=offline", "managers.wandb.close_timeout_s=3"]
    return ["python", str(ROOT / "train.py"), *with_task([*TINY, *places, *shape, *more])]


def run_cell(cell: Cell, start_method: str, *, folder: Path, data: Path) -> Result:
    """Runs and judges one cell in `folder`, which is removed when all is well."""
    result = Result(cell=cell, start_method=start_method)
    if cell.event == "OOM" and not cgroup.is_possible():
        result.is_run = False
        return result
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("state", "chaos"):
        (folder / name).mkdir(parents=True)
    short = Path(tempfile.mkdtemp(prefix="c-", dir="/tmp"))  # sockets lie in TMPDIR, whose path must be short
    (folder / "tmp").symlink_to(short)
    try:
        _Attempt(cell, result, folder, command(folder, data, start_method, cell)).carry_out()
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is this cell's fault, and the others go on
        result.faults.append(str(error) if isinstance(error, AssertionError) else repr(error))
    finally:
        shutil.rmtree(short, ignore_errors=True)
    if not result.faults:
        shutil.rmtree(folder)
    return result


class _Attempt:
    def __init__(self, cell: Cell, result: Result, folder: Path, arguments: list[str]) -> None:
        self.cell, self.result, self.folder, self.arguments = cell, result, folder, arguments
        self.chaos = folder / "chaos"
        self.environ = {
            "TMPDIR": str((folder / "tmp").resolve()),
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONPATH": f"{INJECT}{os.pathsep}{ROOT}",
            "CHAOS_DIR": str(self.chaos),
        }

    def carry_out(self) -> None:
        """Starts, lets it happen, waits and judges."""
        do = None if self.cell.is_from_outside else self.cell.event
        plan = {"at": self.cell.anchor, "victim": self.cell.label, "phase": self.cell.phase, "do": do}
        (self.chaos / "plan.json").write_text(json.dumps(plan))
        with running(self.arguments, output=self.folder / "output", environ=self.environ, cwd=self.folder) as tree:
            pids: set[int] = set()
            began, pid = self._let_it_happen(tree, pids)
            code = self._wait(tree, pids)
            tree.assert_nothing_left(5.0)
            self.result.seconds = time.monotonic() - began
            if self._is_timed() and self.result.seconds > self._limit_s() + LOOKING_S:
                self.result.faults.append(f"took {self.result.seconds:.1f} s, {self._limit_s():g} s are allowed")
            facts = checks.Facts(cell=self.cell, folder=self.folder, code=code, text=tree.text, pid=pid, pids=pids)
        self.result.faults += checks.judge(facts)
        if checks.killed_main(self.cell):
            self._go_on()

    def _let_it_happen(self, tree: Tree, pids: set[int]) -> tuple[float, int]:
        """When it happened, and to whom."""
        self._wait_for(tree, "reached")
        pids |= {process.pid for process in tree.processes()}
        if self.cell.event == "OOM":
            pid = self._read("acted", tree)["pid"]
            began = time.monotonic()
            with cgroup.limited(pid, name=f"chaos-{tree.pid}"):
                (self.chaos / "limited").touch()
                until(lambda: not _lives(pid), 30, what=f"the kernel's end of {pid}")
        elif self.cell.is_from_outside:
            pid = self._victim(tree)
            began = time.monotonic()
            self._send(tree, pid)
        else:
            pid = self._read("acted", tree)["pid"]
            began = time.monotonic()
        (self.chaos / "go").touch()
        if self.cell.is_hang:
            began = self._react(tree, began)
        return began, pid

    def _wait_for(self, tree: Tree, name: str) -> None:
        until(
            lambda: (self.chaos / name).exists() or tree.popen.poll() is not None,
            PLACE_S,
            what=f"{self.cell.anchor} at {self.cell.phase} ({name})\n{tree.text[-3000:]}",
        )
        assert (self.chaos / name).exists(), f"it ended ({tree.popen.poll()}) before {name}:\n{tree.text[-3000:]}"

    def _read(self, name: str, tree: Tree) -> dict[str, Any]:
        self._wait_for(tree, name)
        content: dict[str, Any] = json.loads((self.chaos / name).read_text())
        return content

    def _victim(self, tree: Tree) -> int:
        match self.cell.victim:
            case "main" | "group":
                return tree.pid
            case "tracker":
                found = [p for p in tree.titled("resource_tracker") if p.ppid() == tree.pid]
            case "wandb-core":
                found = [p for p in tree.processes() if _name(p) == "wandb-core"]
            case _:
                found = self._the_anchor_of([p for p in tree.processes() if _label(p) == self.cell.label])
        assert len(found) == 1, f"{self.cell.victim}: {found} among {tree.processes()}"
        return int(found[0].pid)

    def _the_anchor_of(self, found: list[psutil.Process]) -> list[psutil.Process]:
        """Of a worker for training and one for validation with the same label, the one that is at the place."""
        reached = json.loads((self.chaos / "reached").read_text())["pid"]
        exact = [process for process in found if process.pid == reached]
        return exact or sorted(found, key=lambda process: process.create_time())[:1]

    def _send(self, tree: Tree, pid: int) -> None:
        number = signal.SIGSTOP if self.cell.event == "stopped" else getattr(signal, self.cell.event)
        if self.cell.victim == "group":
            tree.signal_group(number)
        else:
            os.kill(pid, number)

    def _react(self, tree: Tree, began: float) -> float:
        """What a person does to a hang that nothing notices; returns when."""
        send: Callable[[int], None] = tree.signal_group if self.cell.victim == "group" else tree.signal
        number = {130: signal.SIGINT, -9: signal.SIGKILL, 0: signal.SIGCONT}.get(self.cell.exit_code)
        if number is None or (number == signal.SIGCONT and self.cell.victim not in ("main", "group")):
            return began
        time.sleep(LATER_S)
        send(number)
        return time.monotonic()

    def _wait(self, tree: Tree, pids: set[int]) -> int:
        """The exit code; notes who lives meanwhile."""
        deadline = time.monotonic() + END_S
        while tree.popen.poll() is None and time.monotonic() < deadline:
            pids |= {process.pid for process in tree.processes()}
            time.sleep(0.1)
        return tree.wait(0.1)

    def _limit_s(self) -> float:
        """The design's time: 5 s after a crash, 10 s after a first signal; a stall is noticed first."""
        if self.cell.is_stall:
            return STALL_S[self.result.start_method] * 1.25 + 5.0
        return 10.0 if self.cell.exit_code in (129, 130, 143) else 5.0

    def _is_timed(self) -> bool:
        """What goes on to its end takes as long as it takes."""
        return self.cell.exit_code != 0

    def _go_on(self) -> None:
        """After main itself was killed the same command goes on, to its end, and removes what was left."""
        environ = {name: value for name, value in self.environ.items() if name not in ("PYTHONPATH", "CHAOS_DIR")}
        with running(self.arguments, output=self.folder / "again", environ=environ, cwd=self.folder) as tree:
            code = tree.wait(END_S)
            tree.assert_nothing_left()
            text = tree.text
        if code != 0:
            self.result.faults.append(f"the same command gave {code} afterwards: {text[-2000:]}")
        self.result.faults += checks.left_files(self.folder)


def _label(process: psutil.Process) -> str | None:
    """What its title calls it; None for one that is not ours, or has just ended."""
    try:
        words = " ".join(process.cmdline()).split()
    except psutil.Error:
        return None
    return words[1] if words[:1] == ["project:"] else None


def _name(process: psutil.Process) -> str | None:
    try:
        return str(process.name())
    except psutil.Error:
        return None


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def prepared(folder: Path) -> Iterator[Path]:
    """Data and caches that all cells share, made by one run that nothing happens to."""
    from tests.helpers.training import write_data

    data = folder / "data"
    data.mkdir(exist_ok=True)
    write_data(data)
    first = folder / "first"
    first.mkdir(exist_ok=True)
    with running(command(first, data, "forkserver", None), output=folder / "output", cwd=folder) as tree:
        assert tree.wait(END_S) == 0, tree.text
    yield data
