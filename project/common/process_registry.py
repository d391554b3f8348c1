"""Who is alive, since when, as what, in which state, and how it ended: one small file per process in the run's folder.

Each process writes its own record and nobody else's, replaced atomically.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from project.common import last_step
from project.common.errors import StorageError
from project.common.files.atomic import write_json
from project.common.files.layout import RunLayout
from project.common.processes import linux
from project.common.processes.identity import Identity, ProcessKey, Role
from project.common.processes.outcome import Outcome

log = logging.getLogger(__name__)

HEARTBEAT_INTERVAL_S = 1.0
# A record is written whole at each change, so a run of days must not make it ever longer.
MOST_STATES = 1000
LEFT_OUT = "(not recorded)"


@dataclass(kw_only=True)
class ProcessRecord:
    """What the registry says of one process.

    Args:
        key: Which process, for ever.
        identity: Its role and place.
        parent_pid: Its logical parent's pid (with a process server not the one that forked it).
        history: The states it was in, as `(state, seconds since the epoch)`; the last is the present one.
        heartbeat: `{"step": n, "time": seconds since the epoch}` of its last step; a sign of progress.
        outcome: How it ended; None while it lives and when it was killed.
    """

    key: ProcessKey
    identity: Identity
    parent_pid: int
    started: float
    history: list[tuple[str, float]] = field(default_factory=list)
    heartbeat: dict[str, float] | None = None
    outcome: dict[str, Any] | None = None
    start_method: str | None = None
    path: Path | None = None

    @property
    def state(self) -> str:
        """Present state: `ended` after an outcome, `killed` when it is gone without one, `stopped` by SIGSTOP."""
        if self.outcome is not None:
            return "ended"
        if self.key.is_local() and not self.key.is_alive():
            return "killed"
        if self.key.is_local() and linux.is_stopped(self.key.pid):
            return "stopped"
        return self.history[-1][0] if self.history else "starting"

    @property
    def last_sign(self) -> float:
        """When it last said anything, in seconds since the epoch."""
        said = [self.started, *(when for _, when in self.history[-1:])]
        return max(*said, *(note["time"] for note in (self.heartbeat, self.outcome) if note is not None))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as it stands in the file."""
        return {
            "key": vars(self.key),
            "identity": self.identity.as_dict(),
            "parent_pid": self.parent_pid,
            "started": self.started,
            "history": self.history,
            "heartbeat": self.heartbeat,
            "outcome": self.outcome,
            "start_method": self.start_method,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], *, path: Path | None = None) -> "ProcessRecord":
        """The inverse of `as_dict`."""
        return cls(
            key=ProcessKey(**data["key"]),
            identity=Identity.from_dict(data["identity"]),
            parent_pid=data["parent_pid"],
            started=float(data["started"]),
            history=[(str(state), float(when)) for state, when in data["history"]],
            heartbeat=None if data["heartbeat"] is None else dict(data["heartbeat"]),
            outcome=None if data["outcome"] is None else dict(data["outcome"]),
            start_method=data.get("start_method"),
            path=path,
        )


_lock = threading.RLock()
_own: ProcessRecord | None = None
_last_step: last_step.LastStep | None = None
_last_written = 0.0


def register(identity: Identity, *, parent_pid: int, start_method: str | None = None) -> ProcessRecord | None:
    """Writes this process's record into the folder of its run; None when it has no run folder."""
    global _own, _last_step
    if identity.run_dir is None:
        return None
    layout = RunLayout(Path(identity.run_dir))
    _make_folder(layout)
    with _lock:
        now, _last_step = time.time(), None  # in a forked child it is its parent's
        _own = ProcessRecord(
            key=ProcessKey.own(),
            identity=identity,
            parent_pid=parent_pid,
            started=now,
            history=[("starting", now)],
            start_method=start_method,
            path=layout.process_record(identity.label, os.getpid()),
        )
        _write()
    return _own


def _make_folder(layout: RunLayout) -> None:
    try:
        layout.processes_dir.mkdir(exist_ok=True)
    except (FileNotFoundError, NotADirectoryError) as error:  # making it anew would hide that it was removed
        raise folder_is_gone(layout.run_dir) from error


def folder_is_gone(run_dir: Path) -> StorageError:
    """What is said when a run's folder was removed under it."""
    return StorageError(f"{run_dir}: the run's folder was removed or replaced while it ran; what was in it is lost")


def or_lost_folder(error: BaseException, run_dir: str | None) -> BaseException:
    """The loss of the run's folder in place of what a process made of it; `error` where the folder is there."""
    if run_dir is None or os.path.isdir(run_dir) or not isinstance(error, Exception):
        return error
    return folder_is_gone(Path(run_dir))


def own_record() -> ProcessRecord | None:
    """This process's record."""
    return _own


def update_identity(identity: Identity) -> None:
    """Says more exactly who this process is; the record keeps its file."""
    with _lock:
        if _own is not None:
            _own.identity = identity
            _write()


def set_state(state: str) -> None:
    """Notes what this process is doing now, such as `training`. Does nothing without a record."""
    with _lock:
        if _own is not None and (not _own.history or _own.history[-1][0] != state):
            _own.history.append((state, time.time()))
            if len(_own.history) > MOST_STATES:
                _shorten(_own.history)
            _write()


def _shorten(history: list[tuple[str, float]]) -> None:
    """Leaves a gap in the middle: how a run began and what it did last is what is asked for."""
    quarter = MOST_STATES // 4
    history[quarter:-quarter] = [(LEFT_OUT, history[quarter][1])]


def heartbeat(step: int) -> None:
    """Notes progress; call it at every step. Its record is written at most once a second, the bare step each time.

    Raises:
        StorageError: The run's folder is gone, so nothing that is still computed would be kept.
    """
    global _last_step
    if _own is None or _own.path is None:
        return
    now = time.time()
    _own.heartbeat = {"step": step, "time": now}
    with suppress(OSError):  # a full disk
        _last_step = _last_step or last_step.LastStep(last_step.path_beside(_own.path))
        _last_step.write(step, now)
    if now - _last_written >= HEARTBEAT_INTERVAL_S:
        if not _own.path.parent.is_dir():
            raise folder_is_gone(_own.path.parent.parent)
        with _lock:
            _write()


def finish(outcome: Outcome) -> None:
    """Writes how this process ends. The first outcome stands."""
    with _lock:
        if _own is not None and _own.outcome is None:
            now = time.time()
            _own.history.append(("ended", now))
            _own.outcome = outcome.as_dict() | {"time": now, "step": (_own.heartbeat or {}).get("step")}
            _write()


def forget() -> None:
    """Drops this process's record from memory; its file stays."""
    global _own, _last_step
    with _lock:
        if _last_step is not None:
            _last_step.close()
        _own = _last_step = None


def _write() -> None:
    global _last_written
    assert _own is not None
    write_record(_own)
    _last_written = time.time()


def write_record(record: ProcessRecord) -> None:
    """Replaces a process's file by what `record` says now."""
    assert record.path is not None
    try:
        write_json(record.path, record.as_dict(), durable=False)
    except OSError as error:  # a full disk must not end a run whose record alone is lost
        if record.path.parent.is_dir():  # else the run ends, and says so once
            log.warning("process record %s could not be written: %s", record.path.name, error)


def read_run(run_dir: str | os.PathLike[str]) -> list[ProcessRecord]:
    """All records of a run, oldest first. A file that another version wrote is skipped and named in the log."""
    return _read(RunLayout(Path(run_dir)).processes_dir.glob("*.json"))


def _read(paths: Iterable[Path]) -> list[ProcessRecord]:
    records = []
    for path in paths:
        try:
            record = ProcessRecord.from_dict(json.loads(path.read_text()), path=path)
            record.heartbeat = last_step.read(last_step.path_beside(path)) or record.heartbeat
            records.append(record)
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s is not a process record: %s", path, error)
    return sorted(records, key=lambda record: record.started)


def find_record(run_dir: str | os.PathLike[str], pid: int) -> ProcessRecord | None:
    """The newest record of `pid` in a run."""
    found = [record for record in read_run(run_dir) if record.key.pid == pid]
    return found[-1] if found else None


def living(run_dir: str | os.PathLike[str], *, below_main: bool = True) -> list[ProcessRecord]:
    """Records of a run whose processes live on this machine; main and the server it owns only on wish."""
    skipped = (Role.MAIN, Role.SERVER) if below_main else ()
    # A run may have had thousands of workers: only records of pids that exist are read.
    paths = RunLayout(Path(run_dir)).processes_dir.glob("*.json")
    records = _read(path for path in paths if _has_living_pid(path))
    return [r for r in records if r.identity.role not in skipped and r.key.is_alive()]


def _has_living_pid(path: Path) -> bool:
    pid = path.stem.rpartition("-")[2]
    return not pid.isdigit() or linux.process_start_time(int(pid)) is not None


def kill_remaining(run_dir: str | os.PathLike[str], *, limit_s: float = 2.0) -> list[ProcessRecord]:
    """Kills what is left of a run's tree (main excepted) and waits until it is gone; returns what it had to kill.

    Exactly the processes that are recorded are hit: each is identified by pid and start time through a pidfd.
    """
    killed: dict[int, ProcessRecord] = {}
    deadline = time.monotonic() + limit_s
    while remaining := living(run_dir):
        for record in remaining:
            if record.key.pid != os.getpid() and linux.kill_process(record.key.pid, record.key.start_time):
                killed[record.key.pid] = record
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return list(killed.values())
