"""Files that are either old or new, never torn: written beside, flushed to disk, then moved into place."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from project.common.processes.linux import process_start_time

TEMPORARY_MARK = ".tmp-"


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, mode: str = "w", durable: bool = True) -> Iterator[IO[Any]]:
    """Opens a file beside `path` that replaces it when the block ends without an error.

    Args:
        path: The final file; its folder must exist.
        mode: `w` (UTF-8 text) or `wb`.
        durable: Flush to disk before the move. False for records that a crash of the machine may lose.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}{TEMPORARY_MARK}{os.getpid()}-{process_start_time(os.getpid())}")
    try:
        with open(temporary, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: str | os.PathLike[str], value: Any, *, durable: bool = True) -> None:
    """Replaces `path` by `value` as JSON."""
    with atomic_file(path, durable=durable) as file:
        json.dump(value, file, indent=1, default=str)
        file.write("\n")


def remove_stale_temporaries(folder: Path) -> list[Path]:
    """Removes what writers that no longer live left in `folder`, and returns it. Files of live writers stay."""
    removed = []
    for file in folder.glob(f"*{TEMPORARY_MARK}*"):
        pid, _, start_time = file.name.rpartition(TEMPORARY_MARK)[2].partition("-")
        if not pid.isdigit() or process_start_time(int(pid)) != start_time:
            file.unlink(missing_ok=True)
            removed.append(file)
    return removed
