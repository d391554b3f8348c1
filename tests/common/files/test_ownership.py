"""One owner per folder, whatever happens to owners."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from project.common.files.ownership import FolderLock
from tests.helpers.tree import ROOT
from tests.helpers.waiting import until

CODE = """
import sys, time
from pathlib import Path
from project.common.files.ownership import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print(lock.acquire(), flush=True)
time.sleep(600)
"""


def test_a_second_owner_is_refused_and_the_next_is_not(tmp_path: Path) -> None:
    first, second = FolderLock(tmp_path / "lock"), FolderLock(tmp_path / "lock")
    assert first.acquire()
    refused = second.acquire()
    first.release()
    first.release()
    granted = second.acquire()
    second.release()

    assert (refused, granted) == (False, True)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_owner_owns_nothing(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", CODE, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "True\n"
    lock = FolderLock(tmp_path / "lock")
    refused = lock.acquire()
    owner.send_signal(signal.SIGKILL)
    owner.wait(5)
    owner.stdout.close()
    granted = until(lock.acquire)
    lock.release()

    assert (refused, granted) == (False, True)


def test_a_file_that_its_former_owner_has_just_removed_is_not_taken_for_the_lock(tmp_path: Path) -> None:
    """Whoever had opened the old file was refused, although nobody owned the folder."""
    path = tmp_path / "lock"
    former = FolderLock(path)
    assert former.acquire()
    opened = os.open
    calls: list[int] = []

    def open_and_let_go(*args: object, **kwargs: object) -> int:
        fd = opened(*args, **kwargs)  # type: ignore[arg-type]
        if not calls:
            calls.append(fd)
            former.release()
        return fd

    os.open = open_and_let_go  # type: ignore[assignment]
    try:
        lock = FolderLock(path)
        granted = lock.acquire()
    finally:
        os.open = opened
    other = FolderLock(path).acquire()
    lock.release()

    assert (granted, other) == (True, False)


def test_many_at_once_have_one_owner_at_a_time(tmp_path: Path) -> None:
    code = CODE.replace("print(lock.acquire(), flush=True)\ntime.sleep(600)", "") + (
        "import os\n"
        "for i in range(150):\n"
        "    if lock.acquire():\n"
        "        fd = os.open(sys.argv[1] + '.held', os.O_CREAT | os.O_EXCL); os.close(fd)\n"
        "        os.unlink(sys.argv[1] + '.held'); lock.release()\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "lock")], cwd=ROOT) for _ in range(3)]

    assert [process.wait(60) for process in started] == [0, 0, 0]
