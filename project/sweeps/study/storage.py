"""Where a study is kept: what `hydra.sweeper.storage` names, and how it may be shown."""

import importlib.util
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, unquote

from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from project.common.errors import ConfigError
from project.common.files.secrets import MASK, mask_text
from project.common.managers.directory import start_dir

KEY = "hydra.sweeper.storage"
PACKAGE = __name__.partition(".")[0]
VARIABLE = f"{PACKAGE.upper()}_STORAGE"  # where an address with a password belongs
DEFAULT_FILE = "study.db"
_FORMS = "sqlite:///study.db, journal:///study.journal, postgresql://user@host/database or null"
_QUERY = re.compile(r"\?(\w+=[^&?]*(?:&\w+=[^&?]*)*)$")  # any other question mark belongs to the path
_SECRET_QUERIES = ("password", "sslpassword")
_SHORTEST_SECRET = 4  # a shorter one would mask ordinary words of an error's text
# A server whose machine vanished is noticed after a minute, not after two hours. In seconds, the last in milliseconds.
_CONNECTION = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
_CONNECTION["tcp_user_timeout"] = 60_000

Kind = Literal["memory", "sqlite", "journal", "server", "object"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a study is kept.

    Args:
        kind: What keeps it.
        shown: Its address, masked.
        url: For SQLAlchemy, with its password: never to be shown.
        file: The file it is kept in, absolute.
        given: A storage that was made already.
    """

    kind: Kind
    shown: str
    url: str = field(default="", repr=False)
    file: Path | None = None
    given: BaseStorage | None = field(default=None, repr=False)

    @property
    def is_postgresql(self) -> bool:
        """Whether a PostgreSQL server keeps it."""
        return self.url.startswith("postgresql")

    def mask(self, text: str) -> str:
        """Another's text about this place, without the secrets in its address."""
        address = make_url(self.url) if self.kind == "server" else None
        secrets = [address.password, *(address.query.get(name) for name in _SECRET_QUERIES)] if address else []
        for secret in secrets:
            if isinstance(secret, str) and len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, MASK).replace(quote(secret, safe=""), MASK)
        return mask_text(text)

    def engine_options(self) -> dict[str, Any]:
        """Arguments of SQLAlchemy's engine: no values in its errors, no dead connections after an outage."""
        options: dict[str, Any] = {"hide_parameters": True}
        if self.kind == "server":
            options["pool_pre_ping"] = True
        if self.is_postgresql:
            given = make_url(self.url).query
            options["connect_args"] = {key: value for key, value in _CONNECTION.items() if key not in given}
        return options


def locate(storage: Any, *, sweep_dir: Path) -> Place:
    """The place that a setting names; no folder is made and nothing is opened.

    Args:
        storage: An address, a storage of Optuna's, or None for the variable `PROJECT_STORAGE` and, without it, a file
            in the sweep's folder. Paths are relative to where the command was typed.
        sweep_dir: The sweep's folder, absolute.

    Raises:
        ConfigError: It is no address, of no known kind, or its driver is not installed.
    """
    storage = storage or os.environ.get(VARIABLE)
    if storage is None:
        return _sqlite_file(sweep_dir / DEFAULT_FILE, {})
    if isinstance(storage, BaseStorage):
        return _of_object(storage, sweep_dir)
    if not isinstance(storage, str):
        raise ConfigError(f"{KEY}: {type(storage).__name__} is no storage; use {_FORMS}")
    scheme, separator, rest = storage.partition("://")
    if not separator and storage.endswith(".journal"):
        return _journal(storage)
    if scheme == "journal":
        return _journal(rest.removeprefix("/"))
    if scheme in ("sqlite", "sqlite+pysqlite"):
        return _sqlite(rest)
    return _server(storage)


def _of_object(storage: BaseStorage, sweep_dir: Path) -> Place:
    if isinstance(storage, InMemoryStorage):
        return Place(kind="memory", shown="in memory", given=storage)
    if isinstance(storage, RDBStorage):
        at = locate(storage.url, sweep_dir=sweep_dir)
        return Place(kind=at.kind, shown=at.shown, url=at.url, file=at.file, given=storage)
    return Place(kind="object", shown=type(storage).__name__, given=storage)


def _absolute(path: str) -> Path:
    return (start_dir() / Path(path).expanduser()).absolute()


def _journal(path: str) -> Place:
    if not path:
        raise ConfigError(f"{KEY}: the journal's file is missing; use {_FORMS}")
    file = _absolute(path)
    return Place(kind="journal", shown=f"journal:///{file}", file=file)


def _sqlite(rest: str) -> Place:
    found = _QUERY.search(rest)
    query = dict(parse_qsl(found[1])) if found else {}
    path = unquote(rest[: found.start()] if found else rest)
    if path in ("", "/", "/:memory:"):
        return Place(kind="memory", shown="in memory", given=InMemoryStorage())
    if not path.startswith("/"):
        raise ConfigError(f"{KEY}: 'sqlite://{rest}' names a host; a file takes three slashes: sqlite:///{rest}")
    return _sqlite_file(_absolute(path[1:]), query)


def _sqlite_file(file: Path, query: dict[str, str]) -> Place:
    url = URL.create("sqlite", database=str(file), query=query).render_as_string()
    return Place(kind="sqlite", shown=url, url=url, file=file)


def _server(storage: str) -> Place:
    try:
        address = make_url(storage)
        if address.drivername in ("postgres", "postgresql"):
            address = address.set(drivername=f"postgresql+{_postgresql_driver()}")
        dialect = address.get_dialect()
        dialect.import_dbapi()
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise ConfigError(f"{KEY}: {mask_text(storage)!r} is no address of a storage; use {_FORMS}") from None
    except ImportError as error:
        scheme = storage.partition("://")[0]
        raise ConfigError(f"{KEY}: {scheme}:// needs the package {error.name!r}; install it") from None
    shown = mask_text(address.render_as_string(hide_password=True))
    # Optuna fills {placeholders} of an address.
    url = address.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
    return Place(kind="server", shown=shown, url=url)


def _postgresql_driver() -> str:
    for name in ("psycopg", "psycopg2"):
        if importlib.util.find_spec(name):
            return name
    raise ConfigError(f"{KEY}: postgresql:// needs the package psycopg; pip install '{PACKAGE}[postgres]'")
