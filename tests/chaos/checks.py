"""What must hold after a cell, whatever happened: files, records, outcome, checkpoint, terminal."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from project.common.errors import ProjectError
from project.common.files.checkpoint_file import load_checkpoint_file
from project.common.files.layout import RunLayout
from project.common.process_registry import ProcessRecord, read_run
from tests.chaos.cells import Cell

INTERRUPTED = {129: "SIGHUP", 130: "SIGINT", 143: "SIGTERM"}
RAISED = {"exception": "ChaosError", "memory": "MemoryError", "sys.exit": "SystemExit"}
DIED = {"SIGKILL": "SIGKILL", "OOM": "SIGKILL", "SIGSEGV": "SIGSEGV", "SIGTERM": "SIGTERM", "SIGHUP": "SIGHUP"}
MOST_LINES = 14  # on the terminal after the start, an epoch or two and the speed among them


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What was seen of a run.

    Args:
        cell: What happened.
        folder: Of the cell.
        code: Main's exit code.
        text: What stood on the terminal.
        pid: The victim's.
        pids: Everybody's.
    """

    cell: Cell
    folder: Path
    code: int
    text: str
    pid: int
    pids: set[int]

    @property
    def layout(self) -> RunLayout | None:
        """The run's folder; None before there is one."""
        found = list((self.folder / "runs").glob("*/*"))
        return RunLayout(found[0]) if found else None


def killed_main(cell: Cell) -> bool:
    """Whether main had no chance to do anything."""
    return cell.exit_code < 0


def judge(facts: Facts) -> list[str]:
    """What does not hold."""
    faults = []
    if facts.code != facts.cell.exit_code:
        faults.append(f"exit code {facts.code}: {facts.text[-1500:]}")
    faults += shared_memory(facts)
    if not killed_main(facts.cell):
        faults += left_files(facts.folder)
        faults += outcome(facts)
        faults += terminal(facts)
    faults += checkpoint(facts)
    return faults


def shared_memory(facts: Facts) -> list[str]:
    """What a process of this tree left in /dev/shm; a killed main leaves it to the next start."""
    if killed_main(facts.cell):
        return []
    names = [path.name for path in Path("/dev/shm").iterdir()]
    ours = [name for name in names if facts.pids & {int(number) for number in re.findall(r"\d+", name)}]
    return [f"left in /dev/shm: {ours}"] if ours else []


def left_files(folder: Path) -> list[str]:
    """Temporary files, sockets, locks and pointers to live runs that are still there."""
    left = [*(folder / "tmp").iterdir(), *(folder / "state").rglob("*.json")]
    left += [*(folder / "runs").rglob("*.tmp-*"), *(folder / "runs").rglob(".owner.lock")]
    return [f"left: {[str(path.relative_to(folder)) for path in left]}"] if left else []


def checkpoint(facts: Facts) -> list[str]:
    """Every checkpoint that is there loads, and from the second epoch on one is there."""
    faults = []
    for path in (facts.folder / "runs").glob("*/*/checkpoints/*.ckpt"):
        try:
            load_checkpoint_file(path)
        except ProjectError as error:
            faults.append(str(error))
    is_after = facts.cell.phase in ("training", "validating") and facts.cell.victim != "worker"
    if is_after or facts.cell.phase == "closing":
        layout = facts.layout
        if layout is None or not layout.checkpoint("last").exists():
            faults.append("no last.ckpt")
    return faults


def outcome(facts: Facts) -> list[str]:
    """`outcome.json` and the registry name who ended how."""
    layout = facts.layout
    if layout is None:
        return [] if facts.cell.phase == "importing" else ["no run folder"]
    if not layout.outcome.exists():
        return ["no outcome.json"]
    end = json.loads(layout.outcome.read_text())
    faults = [] if end["exit_code"] == facts.cell.exit_code else [f"outcome.json says exit code {end['exit_code']}"]
    wanted = _words(facts.cell, facts.pid)
    faults += [f"cause {end['cause']!r} lacks {word!r}" for word in wanted if word not in str(end["cause"])]
    return faults + _record(facts, end)


def _words(cell: Cell, pid: int) -> list[str]:
    """What the cause must say."""
    if cell.exit_code == 0:
        return []
    if cell.is_hang:
        stall = [f"(pid {pid}) was stopped (SIGSTOP)"] if cell.event == "stopped" else ["made no step", "rank"]
        return stall if cell.is_stall else ["SIGINT"]
    if cell.exit_code in INTERRUPTED:
        received = cell.victim not in ("main", "group")
        return [cell.event, *([f"{cell.label} received"] if received else [])]
    if cell.event in RAISED:
        return [RAISED[cell.event] if cell.event != "sys.exit" else "sys.exit("]
    if cell.victim == "server":
        return [f"process server (pid {pid})", "was killed"]
    died = f"(pid {pid}) was killed by {DIED[cell.event]}"
    if cell.victim == "worker":
        is_noted = cell.event in ("SIGTERM", "SIGHUP")  # torch lets SIGTERM kill its workers
        return ["rank 1: DataLoader worker 0", f"(pid {pid})", cell.event if is_noted else died]
    return [cell.label, died]


def _record(facts: Facts, end: dict[str, Any]) -> list[str]:
    """The victim's record and its line in the outcome."""
    cell, layout = facts.cell, facts.layout
    assert layout is not None
    if cell.exit_code == 0 or cell.victim in ("group", "tracker", "wandb-core"):
        return []
    record = next((record for record in read_run(layout.run_dir) if record.key.pid == facts.pid), None)
    listed = next((process for process in end["processes"] if process["pid"] == facts.pid), None)
    if record is None or listed is None:
        return ["the victim has no record"]
    faults = [] if listed["label"] == cell.label else [f"the outcome calls it {listed['label']}"]
    return faults + _how(cell, record)


def _how(cell: Cell, record: ProcessRecord) -> list[str]:
    said = record.outcome or {}
    if cell.event in ("SIGKILL", "SIGSEGV", "OOM", "GIL", "stopped") and cell.victim != "main":
        is_right = record.state == "killed" or "cut at the deadline" in str(said.get("cause"))
        return [] if is_right else [f"its record says {said}"]
    if cell.victim == "worker" and cell.event in ("exception", "memory") and not said.get("exception"):
        return []  # torch hands it to the rank, whose failure it is
    if cell.event in RAISED and said.get("exception") != RAISED[cell.event]:
        return [f"its record says {said.get('exception')}: {said.get('cause')}"]
    has_stepped = cell.victim.startswith("rank") and cell.phase in ("training", "validating", "closing")
    return ["its record has no step"] if has_stepped and not (record.heartbeat or {}).get("step") else []


def terminal(facts: Facts) -> list[str]:
    """One message, no flood of tracebacks."""
    lines = [line for line in facts.text.splitlines() if line.strip()]
    faults = []
    most = 1 if facts.cell.victim == "main" and facts.cell.event in ("exception", "memory") else 0
    if facts.text.count("Traceback (most recent call last)") > most:
        faults.append(f"tracebacks on the terminal: {facts.text[:3000]}")
    if facts.cell.exit_code != 0 and len(lines) > MOST_LINES + most * 40:
        faults.append(f"{len(lines)} lines on the terminal: {facts.text[:3000]}")
    return faults
