"""Where rows come from: files, globs, folders, datasets of the hub, or a function; which split each is for."""

import itertools
import logging
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from project.common.data import hub
from project.common.data.data_files import READERS, Record, read_file
from project.common.errors import DataError
from project.common.processes import stop

log = logging.getLogger(__name__)

_MOST_PEEKED = 100  # files; the others are read when the data is prepared

# Rows whose split nobody has said: they are split by configuration.
UNSPLIT = "all"

_SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}

Files = str | Sequence[str] | Mapping[str, "str | Sequence[str] | None"]


def read_files(files: Files, *, encoding: str = "utf-8", base_dir: Path | None = None) -> dict[str, list[Record]]:
    """Returns the rows of each split, or of `UNSPLIT` where neither the configuration nor a file's name says.

    Args:
        files: a path, a glob, a folder, a saved `datasets` folder or a hub name (`owner/name` or
            `owner/name:configuration`); a list of these; or a mapping from split to these.
        encoding: of CSV, TSV, JSON and text files.
        base_dir: what relative paths are relative to; None for the working directory.

    Raises:
        DataError: something is missing or malformed.
    """
    base = base_dir or Path.cwd()
    if not isinstance(files, Mapping):
        return _collect(files, base=base, encoding=encoding)
    found: dict[str, list[Record]] = {}
    for name, value in files.items():
        if value is None:
            continue
        rows = _collect(value, base=base, encoding=encoding)
        found[split_name(name) or name] = [record for records in rows.values() for record in records]
    return found


def read_rows(rows: Any, *, origin: str) -> dict[str, list[Record]]:
    """Returns what a source function gave: rows, or a mapping from split to rows. `origin` names the function."""
    if isinstance(rows, Mapping):
        return {split_name(name) or name: list(number(part, origin=f"{origin} {name}")) for name, part in rows.items()}
    return {UNSPLIT: list(number(rows, origin=origin))}


def number(rows: Iterable[Any], *, origin: str) -> Iterator[Record]:
    """Yields what a function or stream gives, numbered."""
    for n, row in enumerate(rows):
        where = f"{origin} row {n}"
        if not isinstance(row, Mapping):
            raise DataError(f"task.data.source: {where}: a {type(row).__name__}, not a mapping; return dicts")
        yield Record(where, dict(row))


def split_name(name: str) -> str | None:
    """Returns `train`, `val` or `test` for a word that means it, else None."""
    return _SPLIT_NAMES.get(name.lower())


def _split_of_file(path: Path) -> str:
    # train.csv, train-00000-of-00002.parquet, validation_de.jsonl
    return split_name(path.stem.replace("-", "_").replace(".", "_").partition("_")[0]) or UNSPLIT


def files_of(files: Files | None, *, base_dir: Path | None = None) -> list[Path]:
    """Returns every local file that `read_files` would read, for a fingerprint; nothing for a hub name."""
    if files is None:
        return []
    if isinstance(files, Mapping):
        return [path for value in files.values() if value for path in files_of(value, base_dir=base_dir)]
    base = base_dir or Path.cwd()
    names = [files] if isinstance(files, str) else files
    return [path for name in names for path in _expand(name, base=base)]


def _collect(files: str | Sequence[str], *, base: Path, encoding: str) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for name in [files] if isinstance(files, str) else files:
        for split, records in _read_one(name, base=base, encoding=encoding).items():
            found.setdefault(split, []).extend(records)
    return found


def peek(files: Files, *, encoding: str = "utf-8", base_dir: Path | None = None) -> Iterator[Record]:
    """Yields the first row of local files: enough to know that they are there, can be read, and have which fields.

    Raises:
        DataError: as `read_files`.
    """
    base = base_dir or Path.cwd()
    for value in files.values() if isinstance(files, Mapping) else [files]:
        for name in [value] if isinstance(value, str) else value or ():
            place = _place(name, base=base)
            paths = [] if _is_saved_dataset(place) else _expand(name, base=base)
            if not paths and not _is_saved_dataset(place) and not _may_be_hub_name(name, place=place):
                _refuse_missing(name, base=base)
            for path in paths[:_MOST_PEEKED]:
                yield from itertools.islice(read_file(path, encoding=encoding), 1)


def _place(name: str, *, base: Path) -> Path:
    """Where a name leads. Raises `DataError` for what can hold no data, or cannot be looked at."""
    place = base / Path(name).expanduser()
    if not name.strip() or place.resolve() == Path(place.anchor):
        raise DataError(f"task.data.files: {name!r} is not where data lies; name files, or the folder that holds them")
    try:
        found = place.lstat() if not place.exists() else place.stat()
    except FileNotFoundError:
        return place
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"task.data.files: {name!r} cannot be read ({reason}); give a path that can") from error
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise DataError(
            f"task.data.files: {place} is neither a file nor a folder (a device, a pipe or a broken link); "
            "copy its content to a file, since it is read more than once"
        )
    return place


def _read_one(name: str, *, base: Path, encoding: str) -> dict[str, list[Record]]:
    place = _place(name, base=base)
    if _is_saved_dataset(place):
        return _read_saved_dataset(place)
    paths = _expand(name, base=base)
    if not paths:
        if not _may_be_hub_name(name, place=place):
            _refuse_missing(name, base=base)
        return _records_of_dataset(hub.load(name), origin=name)
    found: dict[str, list[Record]] = {}
    for path in paths:
        # A glob names a set; only in a folder do the files' names say which split they are.
        split = _split_of_file(path) if place.is_dir() else UNSPLIT
        found.setdefault(split, []).extend(read_file(path, encoding=encoding))
    return found


def _expand(name: str, *, base: Path) -> list[Path]:
    """Returns the files that a path, glob or folder means, in an order that no file system can change."""
    place = base / Path(name).expanduser()
    if place.is_file():
        return [place]
    if _is_saved_dataset(place):
        return sorted(path for path in place.rglob("*") if path.is_file())
    if place.is_dir():
        return sorted(path for path in _below(place) if path.suffix.lower() in READERS and path.is_file())
    if any(letter in name for letter in "*?["):
        anchor = Path(place.anchor)
        return sorted(path for path in anchor.glob(str(place.relative_to(anchor))) if path.is_file())
    return []


def _below(place: Path) -> Iterator[Path]:
    for path in place.rglob("*"):
        stop.raise_if_stop_requested()  # a folder may be a whole disk
        yield path


def _may_be_hub_name(name: str, *, place: Path) -> bool:
    path = Path(name)
    if place.exists():
        return False
    is_path = path.is_absolute() or name.startswith((".", "~")) or any(letter in name for letter in "*?[\\")
    return not is_path and path.suffix.lower() not in READERS and name.count("/") <= 1


def _refuse_missing(name: str, *, base: Path) -> NoReturn:
    place = base / Path(name).expanduser()
    if place.is_dir():
        raise DataError(f"task.data.files: {place} holds no file that ends in {', '.join(READERS)}")
    folder = next(parent for parent in place.parents if parent.is_dir())
    near = sorted(path.name for path in folder.iterdir())[:8]
    raise DataError(f"task.data.files: {place} does not exist; {folder} holds {', '.join(near) or 'nothing'}")


def _is_saved_dataset(place: Path) -> bool:
    return (place / "dataset_dict.json").is_file() or (place / "state.json").is_file()


def _read_saved_dataset(place: Path) -> dict[str, list[Record]]:
    from datasets import load_from_disk

    try:
        loaded = load_from_disk(str(place))
    except (OSError, ValueError) as error:
        raise DataError(f"task.data.files: {place}: not a whole saved dataset ({error}); save it again") from error
    return _records_of_dataset(loaded, origin=str(place))


def _records_of_dataset(loaded: Any, *, origin: str) -> dict[str, list[Record]]:
    if not isinstance(loaded, Mapping):
        return {UNSPLIT: list(_records_of_split(loaded, origin=origin))}
    return {
        split_name(name) or name: list(_records_of_split(part, origin=f"{origin} {name}"))
        for name, part in loaded.items()
    }


def _records_of_split(dataset: Any, *, origin: str) -> Iterator[Record]:
    """Yields rows, with the names of classes in place of their numbers."""
    names = {column: feature.names for column, feature in dataset.features.items() if hasattr(feature, "names")}
    for number, row in enumerate(dataset):
        for column, classes in names.items():
            value = row[column]
            # -1 is how the hub's test sets say "unknown".
            row[column] = classes[value] if isinstance(value, int) and value >= 0 else None
        yield Record(f"{origin} row {number}", row)
