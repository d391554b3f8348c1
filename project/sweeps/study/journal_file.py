"""A study's journal: Optuna's format, with errors that can be told from others, and without half lines."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

_BLOCK = 4096
_LINE = b'{"op_code":'  # what each line begins with


class JournalUnreachableError(Exception):
    """Raised when a journal's file cannot be read or written, so that it is told from any other file."""


class JournalFile(JournalFileBackend):
    """Optuna's journal, whose errors say that they are the storage's, and which outlives a line that was cut off.

    Args:
        path: The file; it is made if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._line_lock = path, JournalFileSymlinkLock(str(path))
        super().__init__(str(path), self._line_lock)

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """As Optuna's."""
        with _journal_errors():
            yield from super().read_logs(log_number_from)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """As Optuna's; half a line, of a writer that was killed or had no space left, is removed before."""
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        with _journal_errors(), _locked(self._line_lock), self._path.open("r+b") as file:
            _remove_half_line(file)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def _locked(lock: JournalFileSymlinkLock) -> Iterator[None]:
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _remove_half_line(file: BinaryIO) -> None:
    """Leaves the file at its end, after its last whole line.

    Raises:
        ValueError: What follows that was not written as a journal: it is somebody's file.
    """
    end = file.seek(_end_of_whole_lines(file))
    begins = file.read(len(_LINE))
    if not _LINE.startswith(begins):
        raise ValueError("it is no journal")
    file.truncate(end)
    file.seek(end)


def _end_of_whole_lines(file: BinaryIO) -> int:
    """Length of the file up to its last line break; nearly always all of it."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        begin = max(0, end - _BLOCK)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


@contextmanager
def _journal_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise JournalUnreachableError(error.strerror or str(error)) from error
