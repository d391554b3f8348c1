"""Rows in Arrow files that all processes of a machine read from the same memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from project.common.processes import worker_watch

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

Transform = Callable[[dict[str, Any], np.random.Generator], dict[str, Any]]

ROWS_PER_CHUNK = 4096


class ArrowRows:
    """A map-style dataset over an Arrow file; pickled it is a path, not rows.

    The file is mapped on first use in each process: the kernel keeps one copy for all of them. An index is a row number
    or `(epoch, row number)`. Sequences come as NumPy views of the file, which cannot be written to.

    Args:
        path: an Arrow stream file, such as `write_rows` makes.
        columns: which to read; None reads all but `text`.
        transform: a module-level function that changes a row; what it draws from its generator follows from the seed,
            the epoch and the row alone, whatever worker it runs in.
        seed: for `transform`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        columns: Sequence[str] | None = None,
        transform: Transform | None = None,
        seed: int = 0,
    ) -> None:
        self.path = str(path)
        self.columns = None if columns is None else tuple(columns)
        self.transform = transform
        self.seed = seed
        self._chunks: _Chunks | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_chunks": None}

    def __len__(self) -> int:
        return self._opened().n_rows

    def __getitem__(self, index: int | tuple[int, int]) -> dict[str, Any]:
        epoch, number = index if isinstance(index, tuple) else (0, index)
        worker_watch.note_row(number)
        row = self._opened().row(number)
        if self.transform is None:
            return row
        return self.transform(row, np.random.default_rng([self.seed, epoch, number]))

    def __getitems__(self, indices: Sequence[int | tuple[int, int]]) -> list[dict[str, Any]]:
        return [self[index] for index in indices]

    def column(self, name: str) -> "NDArray[Any]":
        """Returns a column of numbers as one array."""
        return self._opened().table.column(name).to_numpy()

    def texts(self) -> list[str]:
        """Returns the `text` column."""
        return self._opened().table.column("text").to_pylist()

    def _opened(self) -> "_Chunks":
        if self._chunks is None:
            self._chunks = _Chunks(self.path, columns=self.columns)
        return self._chunks


class _Chunks:
    """The mapped file, with NumPy views of each chunk's columns, made when a row of the chunk is first read."""

    def __init__(self, path: str, *, columns: tuple[str, ...] | None) -> None:
        import pyarrow as pa

        self.table: pa.Table = pa.ipc.open_stream(pa.memory_map(path)).read_all()
        self.n_rows = self.table.num_rows
        self._columns = columns or [name for name in self.table.column_names if name != "text"]
        self._batches = self.table.to_batches()
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        self._views: dict[int, dict[str, Callable[[int], Any]]] = {}

    def row(self, number: int) -> dict[str, Any]:
        if not -self.n_rows <= number < self.n_rows:
            raise IndexError(f"row {number} of {self.n_rows}")
        number %= self.n_rows
        chunk = int(np.searchsorted(self._starts, number, side="right")) - 1
        if chunk not in self._views:
            self._views[chunk] = {name: _reader(self._batches[chunk].column(name)) for name in self._columns}
        place = number - int(self._starts[chunk])
        return {name: read(place) for name, read in self._views[chunk].items()}


def _reader(array: "pa.Array") -> Callable[[int], Any]:
    import pyarrow as pa

    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        offsets, values = array.offsets.to_numpy(), array.values.to_numpy()
        return lambda place: values[offsets[place] : offsets[place + 1]]
    if pa.types.is_string(array.type):
        return lambda place: array[place].as_py()
    numbers = array.to_numpy(zero_copy_only=False)
    return lambda place: numbers[place].item()


def write_rows(path: str | Path, rows: Iterable[Mapping[str, Any]], *, schema: "pa.Schema") -> int:
    """Writes rows as an Arrow stream, chunk by chunk, so that they need not fit into memory; returns their number."""
    import pyarrow as pa

    n_rows = 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for chunk in chunks(rows, size=ROWS_PER_CHUNK):
            writer.write_batch(pa.RecordBatch.from_pylist(chunk, schema=schema))
            n_rows += len(chunk)
    return n_rows


def chunks(items: Iterable[Any], *, size: int) -> Iterator[list[Any]]:
    """Cuts items into lists of `size`; the last may be shorter."""
    chunk = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
