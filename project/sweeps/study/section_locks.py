"""What makes a section exclusive: a locked file beside the study's, or a lock of its server."""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout
from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from project.sweeps.study.connecting import make_folder
from project.sweeps.study.patience import SectionLostError
from project.sweeps.study.storage import KEY, Place

log = logging.getLogger(__name__)

_WAIT_IN_QUEUE_MS = 200  # then requests to stop are looked at
_TABLES = "the tables of all studies"
# The first of the two numbers of an advisory lock: others in the same database use others.
_LOCK_SPACE = 0x5EE9

# A holder whose machine vanished is noticed after a minute, not after two hours.
_SETTINGS = {"tcp_keepalives_idle": 30, "tcp_keepalives_interval": 10, "tcp_keepalives_count": 3}
_SET = "SELECT " + ", ".join(
    f"set_config('{name}', '{value}', false)"
    for name, value in (_SETTINGS | {"lock_timeout": _WAIT_IN_QUEUE_MS}).items()
)
_LOCK_NOT_AVAILABLE = "55P03"


class Lock(Protocol):
    """What the section holds; the kernel or the server frees it when its holder ends, however it ends."""

    def acquire(self) -> bool:
        """Whether it is ours now; waits for an instant at most."""

    def check(self) -> None:
        """Raises `SectionLostError` when it is not ours any more."""

    def release(self) -> None:
        """Gives it up."""

    def close(self) -> None:
        """Gives up what it needs."""


class NoLock:
    """For a study in memory, which no other process sees."""

    def acquire(self) -> bool:
        """Always."""
        return True

    def check(self) -> None:
        """Never lost."""

    def release(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class FileSectionLock:
    """A locked file, which stays: removing it would let two processes hold one each."""

    def __init__(self, path: Path) -> None:
        make_folder(path.parent)
        self._lock = FileLock(path, thread_local=False)

    def acquire(self) -> bool:
        """Whether nobody else has the file locked."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        return True

    def check(self) -> None:
        """A file lock is not lost."""

    def release(self) -> None:
        """Unlocks the file."""
        self._lock.release()

    def close(self) -> None:
        """Nothing is open between two sections."""


class AdvisoryLock:
    """A lock of the PostgreSQL server, on a connection of its own: when that ends, the server frees the lock.

    Args:
        place: The server.
        name: What is locked.
    """

    def __init__(self, place: Place, name: str) -> None:
        options = place.engine_options() | {"poolclass": NullPool, "isolation_level": "AUTOCOMMIT"}
        del options["pool_pre_ping"]
        self._engine = create_engine(place.url.format(), **options)
        self._names = {"space": _LOCK_SPACE, "name": name}
        self._connection: Connection | None = None

    def acquire(self) -> bool:
        """Whether the server gives it to us, in the order of asking. A connection that was lost is replaced."""
        if self._connection is not None:
            with suppress(SectionLostError):
                self.check()
        if self._connection is None:
            self._connection = self._engine.connect()
            self._execute(_SET)
        try:
            self._execute("SELECT pg_advisory_lock(:space, hashtext(:name))")
        except _HeldByAnotherError:
            return False
        return True

    def check(self) -> None:
        """Raises `SectionLostError` when the connection, and with it the lock, is gone."""
        self._execute("SELECT 1")

    def release(self) -> None:
        """Unlocks; a connection that is gone has done so already."""
        with suppress(SectionLostError):
            self._execute("SELECT pg_advisory_unlock(:space, hashtext(:name))")

    def close(self) -> None:
        """Closes the connection, which frees the lock too."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError):
                connection.close()

    def _execute(self, statement: str) -> object:
        if self._connection is None:
            raise SectionLostError("the connection that held the section's lock is gone")
        try:
            return self._connection.execute(text(statement), self._names if ":name" in statement else {}).scalar()
        except SQLAlchemyError as error:
            if _sqlstate(error) == _LOCK_NOT_AVAILABLE:
                raise _HeldByAnotherError from None
            self.close()  # SQLAlchemy would connect anew, without the lock
            raise SectionLostError("the connection that held the section's lock was lost") from error


class _HeldByAnotherError(Exception):
    """Raised when another process still has the lock."""


def _sqlstate(error: SQLAlchemyError) -> str | None:
    original = getattr(error, "orig", None)
    return getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)  # psycopg, psycopg2


def lock_of_study(place: Place, *, study_name: str, sweep_dir: Path) -> Lock:
    """The lock that all shells of one study share."""
    if place.is_postgresql:
        return AdvisoryLock(place, study_name)
    if place.kind == "memory":
        return NoLock()
    if place.file is not None:
        return FileSectionLock(place.file.with_name(f"{place.file.name}.section"))
    log.warning(
        "%s: shells keep out of each other's way through a file in %s; start all of them where that folder is seen",
        *(KEY, sweep_dir),
    )
    return FileSectionLock(sweep_dir / ".study.section")


def lock_of_tables(place: Place) -> Lock:
    """The lock under which the tables are made, which all studies of a server share."""
    return AdvisoryLock(place, _TABLES) if place.is_postgresql else NoLock()
