"""Predicts the classes of rows that nobody has labelled, with the model, tokenizer and labels of a checkpoint."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from project.common.data import data_schema, data_sources
from project.common.data.data_files import READERS, Record, read_file
from project.common.data.data_prepare import Recipe
from project.common.data.data_schema import Columns
from project.common.data.rows import ROWS_PER_CHUNK, chunks
from project.common.errors import CheckpointError, DataError
from project.common.files.atomic import atomic_file
from project.common.files.disk import explain_full_disk
from project.common.managers import get_amp_manager, get_batch_manager, get_cuda_manager, get_tokenizer_manager
from project.common.processes.stop import raise_if_stop_requested
from project.training.stored_run import StoredRun, stored_run

if TYPE_CHECKING:
    import pyarrow as pa

_NOT_FOR_THE_MODEL = ("row", "length", "labels")


def predict(checkpoint: Path, *, files: Sequence[str], output: Path, overrides: Mapping[str, Any]) -> int:
    """Writes a row per row of the files as Parquet: row, text, label, probability, probabilities. Returns how many.

    Memory does not grow with the number of rows. `output` is whole or not there.

    Args:
        checkpoint: Written by a run of ours, of a model with classes.
        files: Files, folders, globs or hub names; relative ones lie in the working directory.
        output: The file to write.
        overrides: Dotted key to value, applied to the run's configuration.

    Raises:
        ProjectError: The checkpoint, a key or the data does not fit; says which.
    """
    with stored_run(checkpoint, overrides=overrides) as run:
        if not run.labels:
            raise CheckpointError(f"{checkpoint}: its model has no classes to predict; eval.py measures it")
        rows = _Rows(run, files)
        rows.check()
        return _write(rows, _Predictor(run), output=output, labels=run.labels)


class _Rows:
    """The input, row by row as it would be trained on, without labels."""

    def __init__(self, run: StoredRun, files: Sequence[str]) -> None:
        settings = run.config["managers"]["data"]
        self._files = files
        self._encoding: str = settings["encoding"]
        self._on_empty: str = settings["on_empty"]
        self._columns = Columns(**{**settings["columns"], "label": None, "group": None})
        self._recipe = Recipe(columns=self._columns, on_empty=self._on_empty)
        if self._columns.text is not None:
            encode = partial(get_tokenizer_manager().encode, max_length=settings["max_length"])
            self._recipe = replace(self._recipe, encode=encode)

    def check(self) -> None:
        """Raises `DataError` for what is missing, or lacks a column in its first row."""
        with _named_input():
            data_schema.as_rows(
                data_sources.peek(self._files, encoding=self._encoding), columns=self._columns, on_empty="drop"
            )

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        """Gives the rows in parts; `row` is the place in the input, where those that are left out count too."""
        size = ROWS_PER_CHUNK if self._on_empty == "error" else 1
        first = 0
        with _named_input():
            for part in chunks(self._records(), size=size):
                raise_if_stop_requested()
                found = data_schema.as_rows(part, columns=self._columns, on_empty=self._on_empty)
                yield [{**row, "row": first + row["row"]} for row in self._recipe.rows(found, labels=())]
                first += len(part)

    def _records(self) -> Iterator[Record]:
        paths = data_sources.files_of(self._files)
        if paths and all(path.suffix.lower() in READERS for path in paths):
            for path in paths:
                yield from read_file(path, encoding=self._encoding)
            return
        for records in data_sources.read_files(self._files, encoding=self._encoding).values():
            yield from records


class _Predictor:
    """The model on its device; rows of similar lengths share a batch."""

    def __init__(self, run: StoredRun) -> None:
        self._device = get_cuda_manager().device
        self._model: nn.Module = run.model().to(self._device)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> torch.Tensor:
        """Returns the probabilities [b k] of the classes of each row."""
        batches = get_batch_manager()
        order = sorted(range(len(rows)), key=lambda place: rows[place]["length"])
        found: list[Any] = [None] * len(rows)
        for places in chunks(order, size=batches.batch_size):
            raise_if_stop_requested()
            batch = batches.collate([{k: v for k, v in rows[place].items() if k != "text"} for place in places])
            inputs = {k: v.to(self._device) for k, v in batch.items() if k not in _NOT_FOR_THE_MODEL}
            with torch.inference_mode(), get_amp_manager().autocast():
                logits = self._model(**inputs).logits
            for place, probabilities in zip(places, logits.float().softmax(dim=-1).cpu(), strict=True):
                found[place] = probabilities
        return torch.stack(found)


def _write(rows: _Rows, predictor: _Predictor, *, output: Path, labels: Sequence[str]) -> int:
    from pyarrow import parquet

    n_rows, writer = 0, None
    with explain_full_disk(output.absolute().parent, output.name), atomic_file(output, mode="wb") as file:
        try:
            for part in chunks((row for some in rows for row in some), size=ROWS_PER_CHUNK):
                table = _table(part, predictor(part), labels=labels)
                writer = writer or parquet.ParquetWriter(file, table.schema)
                writer.write_table(table)
                n_rows += len(part)
        finally:
            if writer is not None:
                writer.close()
        if not n_rows:
            raise DataError("input: holds no rows; look at the files and at managers.data.on_empty")
    return n_rows


def _table(rows: Sequence[dict[str, Any]], probabilities: torch.Tensor, *, labels: Sequence[str]) -> "pa.Table":
    import pyarrow as pa

    best = probabilities.max(dim=-1)
    columns: dict[str, Any] = {"row": pa.array([row["row"] for row in rows], type=pa.int64())}
    if "text" in rows[0]:
        columns["text"] = [row["text"] for row in rows]
    columns |= {
        "label": [labels[index] for index in best.indices.tolist()],
        "probability": pa.array(best.values.tolist(), type=pa.float32()),
        "probabilities": pa.array(probabilities.tolist(), type=pa.list_(pa.float32())),
    }
    return pa.table(columns).replace_schema_metadata({"labels": "\n".join(labels)})


@contextmanager
def _named_input() -> Iterator[None]:
    """Errors about data name the key that was typed here."""
    try:
        yield
    except DataError as error:
        raise DataError(str(error).replace("task.data.files:", "input:")) from error
