"""The temporary folder of one tree of processes: its sockets, and whatever its processes make in TMPDIR.

It is gone with the tree, also after a kill, since its name and its owner say to whom it belongs. Its path is also the
mark of the tree: every process below main carries it in its environment (`project.common.processes.strays`).
"""

import contextlib
import getpass
import itertools
import json
import logging
import os
import shutil
import tempfile
from pathlib import Path

from project.common.processes import strays
from project.common.processes.identity import ProcessKey, Role

PREFIX = "project-tree-"
_OWNER = "owner.json"
# A socket's path may have 107 bytes, of which the folder takes 22 and the longest socket in it, torch's, 34.
LONGEST = 51
_SHORT = "/tmp"

log = logging.getLogger(__name__)


def make() -> Path:
    """Makes the folder of this process's tree."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=machine_folder()))
    if not folder.is_relative_to(tempfile.gettempdir()):
        text = "TMPDIR: %s is too long for the addresses of sockets (%d bytes at most); temporary files lie in %s"
        log.warning(text, tempfile.gettempdir(), LONGEST, folder.parent)
    (folder / _OWNER).write_text(json.dumps(vars(ProcessKey.own())))
    return folder


def owner_of(folder: Path) -> ProcessKey | None:
    """Key of the main process that made it; None when nothing readable says so."""
    try:
        return ProcessKey(**json.loads((folder / _OWNER).read_text()))
    except (OSError, ValueError, TypeError):
        return None  # being made or removed, or another user's


def owner() -> ProcessKey | None:
    """Key of the main process of the tree that this process is in; None in main itself."""
    folder = _folder_of(os.environ.get(strays.MARK, ""))
    return None if folder is None else owner_of(folder)


def machine_folder() -> Path:
    """The temporary folder that all processes of this machine share, also seen from within a tree."""
    folder = _folder_of(os.environ.get(strays.MARK, ""))
    if folder is not None:
        return folder.parent
    wished = tempfile.gettempdir()
    return Path(_SHORT if len(os.fsencode(wished)) > LONGEST and os.access(_SHORT, os.W_OK) else wished)


def use(mark: str) -> None:
    """Lets this process, and all below it, carry the mark and make temporary files in the folder of its tree."""
    os.environ[strays.MARK] = mark
    folder = _folder_of(mark)
    assert folder is not None, f"{mark} is the mark of no tree"
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # it may have been asked for in the process that this one was forked from
    with contextlib.suppress(OSError, KeyError):  # a user without a name
        # What torch has compiled is for later runs too.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder.parent}/torchinductor_{getpass.getuser()}")


def _folder_of(mark: str) -> Path | None:
    path = Path(mark)
    return next((folder for folder in (path, *path.parents) if folder.name.startswith(PREFIX)), None)


_n_trials = itertools.count(1)


def own_mark(folder: str) -> str:
    """The mark of this process; main, which is the owner of the tree and carries none, goes by the folder."""
    carried = os.environ.get(strays.MARK, "")
    return carried if carried.startswith(folder) else folder


def mark_for(role: Role, folder: str) -> str:
    """The mark of a process that this one starts: a trial has its own, which all below it share."""
    own = own_mark(folder)
    return f"{own}/{next(_n_trials)}" if role is Role.TRIAL else own


def remove(folder: Path, owner_pid: int) -> None:
    """Removes the folder, if this process is its owner and not a fork of it."""
    if os.getpid() == owner_pid:
        shutil.rmtree(folder, ignore_errors=True)


def stale() -> dict[Path, ProcessKey]:
    """This user's folders of trees whose owner is gone from this machine, with those owners."""
    found = {}
    for folder in machine_folder().glob(f"{PREFIX}*"):
        main = owner_of(folder)
        if main is not None and _is_mine(folder) and main.is_local() and not main.is_alive():
            found[folder] = main
    return found


def _is_mine(folder: Path) -> bool:
    try:
        return not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
    except OSError:
        return False
