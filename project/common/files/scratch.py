"""A folder for the sockets of one tree of processes, marked with its owner: a later start knows what was left."""

import json
import os
import shutil
import tempfile
from pathlib import Path

from project.common.processes.identity import ProcessKey

PREFIX = "project-tree-"
_OWNER = "owner.json"


def make() -> Path:
    """Makes the folder of this process's tree, after removing what trees that no longer live left."""
    remove_stale()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))  # short: a socket's path may have 107 bytes
    (folder / _OWNER).write_text(json.dumps(vars(ProcessKey.own())))
    return folder


def remove(folder: Path, owner_pid: int) -> None:
    """Removes the folder, if this process is its owner and not a fork of it."""
    if os.getpid() == owner_pid:
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale() -> list[Path]:
    """Removes this user's folders of trees whose owner is gone from this machine, and returns them."""
    removed = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            owner = ProcessKey(**json.loads((folder / _OWNER).read_text()))
            is_ours = not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
        except (OSError, ValueError, TypeError):
            continue  # being made or removed, or another user's
        if is_ours and owner.is_local() and not owner.is_alive():
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed
