"""Opens the storage of a study; what goes wrong is said in one line that shows no secret."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, get_storage
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from project.common.errors import ConfigError
from project.common.files import disk
from project.sweeps.study.journal_file import JournalFile, JournalUnreachableError
from project.sweeps.study.storage import KEY, Place


def connect(place: Place) -> BaseStorage:
    """Opens it; makes its folder, file and tables where they are missing. One process at a time, please.

    Raises:
        ConfigError: It cannot be opened, or is of another kind or version.
    """
    if place.given is not None:
        return get_storage(place.given)
    with refused(place):
        if place.file is not None:
            make_folder(place.file.parent)
            if place.kind == "journal":
                return JournalStorage(JournalFile(place.file))
        return get_storage(RDBStorage(place.url, engine_kwargs=place.engine_options()))


def disconnect(storage: BaseStorage) -> None:
    """Closes the connections of a storage from `connect`; it opens new ones if it is used again."""
    backend = getattr(storage, "_backend", storage)  # below Optuna's cache
    if isinstance(backend, RDBStorage):
        backend.remove_session()
        backend.engine.dispose()


def make_folder(folder: Path) -> None:
    """Makes it; raises `ConfigError` if that is impossible or nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        problem = disk.is_writable(folder)
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise ConfigError(f"{KEY}: {folder} cannot be written to ({problem}); name a file in a folder that can")


_UNUSABLE = (
    SQLAlchemyError,
    StorageInternalError,
    RuntimeError,
    ValueError,
    OSError,
    KeyError,
    JournalUnreachableError,
)


@contextmanager
def refused(place: Place) -> Iterator[None]:
    """Lets what goes wrong at opening refuse the setting, in one line that shows no secret."""
    try:
        yield
    except _UNUSABLE as error:
        raise ConfigError(f"{KEY}: {place.shown} cannot be opened ({reason(place, error)}); {_cure(place)}") from None


def reason(place: Place, error: BaseException) -> str:
    """What the storage's library says, in one line without secrets."""
    cause = error.__cause__ if isinstance(error.__cause__, SQLAlchemyError) else error
    said = str(cause.orig if isinstance(cause, DBAPIError) and cause.orig else cause)
    return place.mask(" ".join(said.split())) or type(error).__name__


def _cure(place: Place) -> str:
    if place.kind == "server":
        return "start the server, or mend user, host or database in the address"
    return "give a file that Optuna has written, or one that does not exist yet"
