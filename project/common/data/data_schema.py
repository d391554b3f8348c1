"""From rows as they were found to rows as they are trained on; what is wrong is told with its place."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from project.common.data.data_files import Record
from project.common.data.data_sources import UNSPLIT
from project.common.errors import DataError

MAX_REPORTED = 5
_LETTERS = str.maketrans("0123456789", "abcdefghij")

Row = dict[str, Any]
Split = Callable[..., Mapping[str, Sequence[Row]]]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which column is what.

    Args:
        text: what is tokenised; None for rows without text.
        label: the class; None when there is none (language modelling).
        group: rows of one group stay in one split; None or a column that no row has: rows of equal text do.
        features: numbers that go to the model as they are, all rows the same shape; None when there are none.
    """

    text: str | None = "text"
    label: str | None = "label"
    group: str | None = None
    features: str | None = None


def as_rows(records: Iterable[Record], *, columns: Columns, on_empty: str = "error") -> list[Row]:
    """Returns rows with `text`, `group`, `where`, and as configured `label` (a string) and `features`.

    Args:
        records: what a source gave.
        columns: which column is what.
        on_empty: a row with an empty text or label is an `error`, or left out by `drop`.

    Raises:
        DataError: fields are missing or empty; the first few, with file and line, and how many there are.
    """
    rows, problems = [], []
    for number, record in enumerate(records):
        problem = _problem(record, columns=columns)
        if problem is None:
            rows.append(_as_row(record, columns=columns, number=number))
        elif on_empty == "error" or not problem.startswith("field"):
            problems.append(f"task.data.files: {record.where}: {problem}")
    if problems:
        more = len(problems) - MAX_REPORTED
        raise DataError("\n".join([*problems[:MAX_REPORTED], *([f"... and {more} more rows"] if more > 0 else [])]))
    return rows


def _problem(record: Record, *, columns: Columns) -> str | None:
    wanted = [name for name in (columns.text, columns.label, columns.features) if name is not None]
    for name in wanted:
        if name not in record.fields:
            return f"no field '{name}'; fields: {', '.join(map(str, record.fields))}; name yours in task.data.columns"
    for name in wanted:
        value = record.fields[name]
        if value is None or (isinstance(value, str) and not value.strip()):
            return f"field '{name}' is empty; fill it, or leave such rows out with managers.data.on_empty=drop"
    if columns.text is not None and not isinstance(record.fields[columns.text], str):
        kind = type(record.fields[columns.text]).__name__
        return f"'{columns.text}' is a {kind}, not text; choose another column in task.data.columns.text"
    return None


def _as_row(record: Record, *, columns: Columns, number: int) -> Row:
    fields = record.fields
    # Splitters tell equal rows by the letters of their text; rows of numbers alone are all different.
    text = str(number).translate(_LETTERS) if columns.text is None else fields[columns.text]
    row: Row = {"where": record.where, "text": text}
    if columns.label is not None:
        row["label"] = str(fields[columns.label])
    if columns.features is not None:
        row["features"] = fields[columns.features]
    group = fields.get(columns.group) if columns.group is not None else None
    row["group"] = str(group) if group is not None else row["text"]
    return row


def split_rows(
    found: Mapping[str, Sequence[Row]], *, split: Split, origin: str = "the source and its filters"
) -> dict[str, list[Row]]:
    """Returns the rows of each split: as given, or as `split(rows)` says for rows whose split nobody has said.

    When training rows are given but none for `val`, which early stopping and searches need, `val` is taken from them.

    Args:
        found: rows by split; those that nobody has assigned under `UNSPLIT`.
        split: splits the latter.
        origin: where training rows should have come from.

    Raises:
        DataError: no training rows, or they cannot be split.
    """
    given = {name: list(rows) for name, rows in found.items() if name != UNSPLIT}
    rows = [*given.pop("train", []), *found.get(UNSPLIT, [])]
    if not rows:
        counts = ", ".join(f"{name} {len(part)}" for name, part in given.items()) or "no other split either"
        raise DataError(f"task.data: the training set is empty (0 rows; {counts}); look at {origin}")
    drawn = {"train": rows} if "val" in given else _draw(rows, split=split)
    if given:
        # Only val was missing: what was drawn for other splits stays where it came from.
        drawn = {
            "train": [row for name, part in drawn.items() if name != "val" for row in part],
            **({"val": drawn["val"]} if "val" in drawn else {}),
        }
    return drawn | given


def _draw(rows: list[Row], *, split: Split) -> dict[str, list[Row]]:
    try:
        drawn = {name: list(part) for name, part in split(rows).items()}
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"task.data.split: {error}") from error
    if not drawn.get("train"):
        raise DataError(f"task.data.split: no rows for train, of {len(rows)}; it gave {', '.join(drawn) or 'nothing'}")
    return drawn


def label_names(splits: Mapping[str, Sequence[Row]]) -> list[str]:
    """Returns the training split's labels in order: by number if all are whole numbers, else by name.

    Raises:
        DataError: another split has a label that training does not know.
    """
    names = {row["label"] for row in splits["train"]}
    for split, rows in splits.items():
        for row in rows:
            if row["label"] not in names:
                some = ", ".join(_ordered(names)[:12])
                raise DataError(
                    f"task.data.files: {row['where']}: label '{row['label']}' of split {split} is not in the training "
                    f"set; labels there: {some}"
                )
    return _ordered(names)


def _ordered(names: Iterable[str]) -> list[str]:
    names = list(names)
    if all(name.lstrip("-").isdecimal() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)
