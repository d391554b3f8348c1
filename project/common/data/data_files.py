"""Reads one file of rows: CSV, TSV, JSON, JSONL, Parquet or text. Every complaint names the file and the line."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from project.common.errors import DataError


class Record(NamedTuple):
    """A row as it was found.

    Args:
        where: for people: `train.csv line 17`.
        fields: column names and values.
    """

    where: str
    fields: dict[str, Any]


def read_file(path: Path, *, encoding: str = "utf-8") -> Iterator[Record]:
    """Yields the rows of a file, whose extension says what it is.

    Raises:
        DataError: the file is of no known kind or malformed.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"task.data.files: {path} has no known extension; use {', '.join(READERS)}")
    return _named(path, reader(path, encoding))


def _named(path: Path, records: Iterator[Record]) -> Iterator[Record]:
    try:
        yield from records
    except OSError as error:
        raise DataError(f"task.data.files: {path} cannot be read ({error.strerror or error})") from error


def _lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Yields numbered lines without their ends. Decoded one by one, so that a wrong byte has a line number."""
    # A byte order mark is no part of the first column's name.
    decoder = "utf-8-sig" if encoding.lower().replace("_", "-") in {"utf-8", "utf8"} else encoding
    if decoder.lower().startswith(("utf-16", "utf-32", "utf16", "utf32")):
        raise DataError(f"task.data.encoding: {encoding} cannot be read by line; save {path} as utf-8")
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield number, line.decode(decoder if number == 1 else encoding)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"task.data.files: {path} line {number}: byte 0x{line[error.start]:02x} is not {encoding}; "
                    "save the file as utf-8, or name its encoding in task.data.encoding"
                ) from error
            except LookupError as error:
                raise DataError(f"task.data.encoding: {encoding!r} is unknown; utf-8 is the usual one") from error


def _read_delimited(path: Path, encoding: str, *, delimiter: str) -> Iterator[Record]:
    csv.field_size_limit(2**31 - 1)
    # newline handling is csv's own: a quoted field may hold a line end.
    reader = csv.reader((line for _, line in _lines(path, encoding)), delimiter=delimiter, strict=True)
    try:
        header = next(reader, None)
        if header is None:
            raise DataError(f"task.data.files: {path} is empty; its first line names the columns")
        _check_header(header, path=path)
        begin = reader.line_num + 1
        for values in reader:
            where = f"{path} line {begin}"
            begin = reader.line_num + 1
            if not values:
                continue
            if len(values) != len(header):
                raise DataError(
                    f"task.data.files: {where}: {len(values)} fields, but the header has {len(header)}; "
                    f"quote fields that hold {delimiter!r} or line ends"
                )
            yield Record(where, dict(zip(header, values, strict=True)))
    except csv.Error as error:
        raise DataError(f"task.data.files: {path} line {reader.line_num}: {error}; mend the quoting") from error


def _check_header(header: list[str], *, path: Path) -> None:
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DataError(f"task.data.files: {path} line 1: column '{twice[0]}' is there twice; name each column once")


def _read_csv(path: Path, encoding: str) -> Iterator[Record]:
    return _read_delimited(path, encoding, delimiter=",")


def _read_tsv(path: Path, encoding: str) -> Iterator[Record]:
    return _read_delimited(path, encoding, delimiter="\t")


def _read_jsonl(path: Path, encoding: str) -> Iterator[Record]:
    for number, line in _lines(path, encoding):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(
                f"task.data.files: {path} line {number} column {error.colno}: not JSON ({error.msg}); "
                "one object per line"
            ) from error
        yield Record(f"{path} line {number}", _as_object(value, where=f"{path} line {number}"))


def _read_json(path: Path, encoding: str) -> Iterator[Record]:
    """A list of objects; JSONL under this name is read as such."""
    text = "".join(line for _, line in _lines(path, encoding))
    if not text.lstrip().startswith("["):
        yield from _read_jsonl(path, encoding)
        return
    try:
        items = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"task.data.files: {path} line {error.lineno} column {error.colno}: not JSON ({error.msg}); mend the file"
        ) from error
    for number, item in enumerate(items, start=1):
        yield Record(f"{path} item {number}", _as_object(item, where=f"{path} item {number}"))


def _as_object(value: Any, *, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f'task.data.files: {where}: a {type(value).__name__}, not an object; write {{"text": ...}}')
    return value


def _read_parquet(path: Path, encoding: str) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                for fields in batch.to_pylist():
                    number += 1
                    yield Record(f"{path} row {number}", fields)
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"task.data.files: {path} after row {number}: not Parquet ({reason}); write it again"
        ) from error


def _read_text(path: Path, encoding: str) -> Iterator[Record]:
    """A row per line that is not blank; `file` (without extension) and `folder` can serve as label or group."""
    for number, line in _lines(path, encoding):
        if text := line.strip():
            yield Record(f"{path} line {number}", {"text": text, "file": path.stem, "folder": path.parent.name})


READERS: dict[str, Callable[[Path, str], Iterator[Record]]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".parquet": _read_parquet,
    ".txt": _read_text,
}
