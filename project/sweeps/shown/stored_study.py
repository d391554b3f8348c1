"""Finds the study of a sweep that was, or is, and opens it only to read."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, get_storage

from project.common.errors import ConfigError, ProjectError
from project.common.files.secrets import MASK
from project.sweeps.study.connecting import disconnect, reason, refused
from project.sweeps.study.journal_file import JournalFile
from project.sweeps.study.storage import DEFAULT_FILE, VARIABLE, Place, locate

FACTS_FILE = "sweep.json"


@contextmanager
def stored_study(sweep_dir: Path) -> Iterator[tuple[optuna.Study, Place]]:
    """Yields the study of a sweep's folder; what it is asked, it reads, and nothing is written.

    Raises:
        ConfigError: There is no such folder, no study in it, or no storage that can be opened.
        ProjectError: The storage does not answer any more.
    """
    place = find_place(sweep_dir)
    with refused(place):
        storage = _open_to_read(place)
    try:
        with refused(place):
            study = optuna.load_study(study_name=_study_name(sweep_dir, storage), storage=storage)
        yield study, place
    except StorageInternalError as error:
        raise ProjectError(f"{place.shown}: cannot be read now ({reason(place, error)})") from None
    finally:
        disconnect(storage)


def find_place(sweep_dir: Path) -> Place:
    """Where a sweep's study is kept.

    The file in the folder comes first, so that a sweep can be copied; then `PROJECT_STORAGE`, then what was recorded.

    Raises:
        ConfigError: Nothing says where, or it is not there.
    """
    if not sweep_dir.is_dir():
        raise ConfigError(f"{sweep_dir}: no such folder; name a sweep's, such as sweeps/<study>")
    own = sweep_dir.absolute() / DEFAULT_FILE
    address = f"sqlite:///{quote(str(own))}" if own.is_file() else os.environ.get(VARIABLE) or _recorded(sweep_dir)
    if not address:
        raise ConfigError(f"{sweep_dir}: no {DEFAULT_FILE} there, and {FACTS_FILE} names no storage; is it a sweep's?")
    if "://" not in address and not address.endswith(".journal"):
        raise ConfigError(f"{sweep_dir}: its study was kept {address}; {VARIABLE} may name where it is now")
    place = locate(address, sweep_dir=sweep_dir.absolute())
    if place.file is not None and not place.file.is_file():
        raise ConfigError(f"{place.file}: no such file; {VARIABLE} may name the sweep's storage")
    return place


def _recorded(sweep_dir: Path) -> str:
    """The address without its mask: a driver may know the password from a variable of its own."""
    return str(_facts(sweep_dir).get("storage_masked") or "").replace(f":{MASK}@", "@")


def _facts(sweep_dir: Path) -> dict[str, Any]:
    file = sweep_dir / FACTS_FILE
    try:
        found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read ({error})") from None
    return found if isinstance(found, dict) else {}


def _open_to_read(place: Place) -> BaseStorage:
    if place.kind == "journal" and place.file is not None:
        return JournalStorage(JournalFile(place.file))
    url = f"sqlite:///file:{quote(str(place.file))}?mode=ro&uri=true" if place.kind == "sqlite" else place.url
    return get_storage(RDBStorage(url, engine_kwargs=place.engine_options(), skip_table_creation=True))


def _study_name(sweep_dir: Path, storage: BaseStorage) -> str:
    names = sorted(study.study_name for study in storage.get_all_studies())
    name = _facts(sweep_dir).get("study_name") or (names[0] if len(names) == 1 else None)
    if name not in names:
        there = f"the studies {', '.join(names)}" if names else "no study"
        wanted = f"not {name!r}" if name else f"and {FACTS_FILE} does not say which one is meant"
        raise ConfigError(f"{sweep_dir}: its storage has {there}, {wanted}")
    return str(name)
