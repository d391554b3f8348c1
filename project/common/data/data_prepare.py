"""Turns checked rows into the files that training maps: tokens, numbers of labels, lengths."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from project.common.data.data_schema import Columns, Row, label_names
from project.common.data.rows import ROWS_PER_CHUNK, chunks, write_rows
from project.common.errors import DataError
from project.common.processes import stop

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

META = "meta.json"

Encode = Callable[[Sequence[str]], list[list[int]]]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How rows are stored.

    Args:
        columns: which kinds of columns there are.
        encode: texts to token ids, cut as configured; None for rows without text.
        max_length: what `encode` cuts to; the size of a block if texts are packed.
        pack: joins texts into blocks of equal size; what does not fill the last block is left out.
        end_token_id: ends each text in a block, where the tokenizer does not put it there itself; None for nothing.
        on_empty: what happens to a text without any token: `error` or `drop`.
    """

    columns: Columns
    encode: Encode | None = None
    max_length: int | None = None
    pack: bool = False
    end_token_id: int | None = None
    on_empty: str = "error"

    def schema(self) -> "pa.Schema":
        """Returns the columns of each file: `row` is the row's number in its split, `length` its tokens."""
        import pyarrow as pa

        fields = {"row": pa.int64(), "length": pa.int32()}
        if self.encode is not None:
            fields["input_ids"] = pa.list_(pa.int32())
        if self.columns.label is not None:
            fields["label"] = pa.int64()
        if self.columns.features is not None:
            fields["features"] = pa.list_(pa.float32())
        if self.encode is not None and not self.pack:
            fields["text"] = pa.string()
        return pa.schema(list(fields.items()))

    def rows(self, part: Sequence[Row], *, labels: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yields a split's rows as they are stored."""
        if self.pack:
            yield from self._blocks(part)
            return
        number_of = {label: number for number, label in enumerate(labels)}
        for number, (row, stored) in enumerate(self._tokenised(part)):
            if self.columns.label is not None:
                stored["label"] = number_of[row["label"]]
            if self.columns.features is not None:
                stored["features"] = _features(row, like=part[0])
            yield stored | {"row": number}

    def _tokenised(self, part: Sequence[Row]) -> Iterator[tuple[Row, dict[str, Any]]]:
        if self.encode is None:
            yield from ((row, {"length": 1}) for row in part)
            return
        for chunk in chunks(part, size=ROWS_PER_CHUNK):
            stop.raise_if_stop_requested()
            for row, ids in zip(chunk, self.encode([row["text"] for row in chunk]), strict=True):
                if ids:
                    yield row, {"input_ids": ids, "length": len(ids), "text": row["text"]}
                elif self.on_empty == "error":
                    raise DataError(
                        f"task.data.files: {row['where']}: the tokenizer finds no token in {row['text']!r}; "
                        "mend the text, or leave such rows out with managers.data.on_empty=drop"
                    )

    def _blocks(self, part: Sequence[Row]) -> Iterator[dict[str, Any]]:
        assert self.max_length is not None
        waiting: list[int] = []
        n_stored = 0
        for _, stored in self._tokenised(part):
            waiting += stored["input_ids"]
            if self.end_token_id is not None and waiting[-1] != self.end_token_id:
                waiting.append(self.end_token_id)
            whole = len(waiting) // self.max_length * self.max_length
            for start in range(0, whole, self.max_length):
                block = waiting[start : start + self.max_length]
                yield {"row": n_stored, "input_ids": block, "length": self.max_length}
                n_stored += 1
            waiting = waiting[whole:]


def _features(row: Row, *, like: Row) -> "np.ndarray[Any, Any]":
    try:
        numbers = np.asarray(row["features"], dtype=np.float32).ravel()
    except (TypeError, ValueError) as error:
        raise DataError(
            f"task.data.files: {row['where']}: features are no numbers ({error}); give a list of numbers"
        ) from error
    if len(numbers) != np.size(like["features"]):
        raise DataError(
            f"task.data.files: {row['where']}: {len(numbers)} features, but {like['where']} has "
            f"{np.size(like['features'])}; give every row as many"
        )
    return numbers


def write_splits(folder: Path, splits: Mapping[str, Sequence[Row]], *, recipe: Recipe) -> None:
    """Makes `folder` with one Arrow file per split, and `meta.json` with labels and numbers of rows."""
    folder.mkdir(parents=True)
    labels = [] if recipe.columns.label is None else label_names(splits)
    n_rows = {}
    for split, part in splits.items():
        path = folder / f"{split}.arrow"
        n_rows[split] = write_rows(path, recipe.rows(part, labels=labels), schema=recipe.schema())
        if part and not n_rows[split]:
            raise DataError(
                f"task.data: nothing of the {len(part)} rows of split {split} is left after tokenising"
                + (f"; they do not fill one block of {recipe.max_length} tokens" if recipe.pack else "")
            )
    meta = {"labels": labels, "n_rows": n_rows}
    (folder / META).write_text(json.dumps(meta, ensure_ascii=False), encoding="utf-8")
    log.info("prepared data: %s", ", ".join(f"{split} {n} rows" for split, n in n_rows.items()))


def read_meta(folder: Path) -> dict[str, Any]:
    """Returns `labels` and `n_rows` of what `write_splits` made."""
    meta: dict[str, Any] = json.loads((folder / META).read_text(encoding="utf-8"))
    return meta
