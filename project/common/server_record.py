"""The record of the process server, which knows no run itself: main keeps it."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from project.common.files.layout import RunLayout
from project.common.process_registry import ProcessRecord, write_record
from project.common.processes import linux
from project.common.processes.identity import Identity, ProcessKey, Role
from project.common.processes.outcome import Outcome, Status


@contextmanager
def server_noted(main: Identity, pid: int | None) -> Iterator[None]:
    """Keeps a record of the process server with `pid`; does nothing when there is none.

    A server that lives on afterwards has done its part in this run; one that was killed is left without an outcome.
    """
    key = None if pid is None else ProcessKey.of(pid)
    if key is None or main.run_dir is None:
        yield
        return
    now = time.time()
    record = ProcessRecord(
        key=key,
        identity=main.child(role=Role.SERVER),
        parent_pid=os.getpid(),
        started=now,
        history=[("serving", now)],
        path=RunLayout(Path(main.run_dir)).process_record("server", key.pid),
    )
    write_record(record)
    try:
        yield
    finally:
        if key.is_alive() and not linux.is_ending(key.pid):
            now = time.time()
            record.history.append(("ended", now))
            record.outcome = Outcome(status=Status.COMPLETED, exit_code=0).as_dict() | {"time": now, "step": None}
            write_record(record)
