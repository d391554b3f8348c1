"""A PostgreSQL server of a test's own, on a socket in a folder of its own."""

import contextlib
import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.needs import miss
from tests.helpers.waiting import until

PACKAGE = "postgresql"  # Debian's and Ubuntu's name


class Server:
    """A server that this process started and stops.

    Args:
        folder: Its data and socket.
        bin_dir: The programs.
        user: Who runs it: it refuses root.
    """

    def __init__(self, folder: Path, *, bin_dir: Path, user: str | None) -> None:
        self.folder, self._bin_dir, self._user = folder, bin_dir, user
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", str(folder / "data"), "-U", "tester", "-A", "trust", "--no-sync")

    def url(self, user: str = "tester", database: str = "postgres") -> str:
        """Its address."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def start(self) -> None:
        """Starts it and waits until it answers."""
        options = {
            "listen_addresses": "",
            "unix_socket_directories": self.folder,
            "dynamic_shared_memory_type": "mmap",
        }
        options |= {"autovacuum": "off", "fsync": "off"}
        settings = [word for key, value in options.items() for word in ("-c", f"{key}={value}")]
        with open(self.folder / "server.log", "ab") as out:
            self._process = subprocess.Popen(
                [self._bin_dir / "postgres", "-D", self.folder / "data", *settings],
                **self._as_user(),  # type: ignore[call-overload]
                stdout=out,
                stderr=out,
                cwd=self.folder,
            )
        until(self._answers, 30, what="the server answers")

    def stop(self, *, at_once: bool = True) -> None:
        """Stops it as after a crash, or in order, without waiting for clients."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
            self._process.wait(30)
            self._process = None

    def sql(self, statement: str) -> str:
        """What a statement returns, as text."""
        return self._run("psql", "-X", "-A", "-t", "-h", str(self.folder), "-U", "tester", "postgres", "-c", statement)

    def _answers(self) -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.sql("SELECT 1")
            return True
        return False

    def _run(self, name: str, *arguments: str) -> str:
        done = subprocess.run(
            [self._bin_dir / name, *arguments],
            **self._as_user(),  # type: ignore[call-overload]
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.folder,
            check=True,
        )
        return str(done.stdout).strip()

    def _as_user(self) -> dict[str, object]:
        if self._user is None:
            return {}
        entry = pwd.getpwnam(self._user)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """A server that is ready; it is stopped and its folder removed."""
    bin_dir, user = _programs(), None
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # the path of a socket may have 107 characters
    if os.getuid() == 0:
        user = "postgres" if any(entry.pw_name == "postgres" for entry in pwd.getpwall()) else "nobody"
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    server = None
    try:
        server = Server(folder, bin_dir=bin_dir, user=user)
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop(at_once=False)
        shutil.rmtree(folder)


def _programs() -> Path:
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else [Path(p).parent for p in sorted(glob.glob(_DEBIAN))]
    if not places:
        miss("a PostgreSQL server", package=PACKAGE)
    return places[-1]


_DEBIAN = "/usr/lib/postgresql/*/bin/initdb"
