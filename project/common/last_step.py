"""A process's last step, written at every step for the price of a system call: also one that stalls right after it."""

import os
import struct
from pathlib import Path

_FORM = struct.Struct("=qd")


def path_beside(record: Path) -> Path:
    """Where the last step of the process with this record stands."""
    return record.with_suffix(".step")


class LastStep:
    """Writes one small file, in place.

    Args:
        path: Of the file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)

    def write(self, step: int, seconds: float) -> None:
        """Replaces step and time."""
        os.pwrite(self._file.fileno(), _FORM.pack(step, seconds), 0)

    def close(self) -> None:
        """Leaves the file to its readers."""
        self._file.close()


def read(path: Path) -> dict[str, float] | None:
    """Step and time, or None where no step was made."""
    try:
        step, seconds = _FORM.unpack(path.read_bytes())
    except (OSError, struct.error):
        return None
    return {"step": step, "time": seconds}
