"""Datasets, read, checked, split and tokenised once per machine, then mapped into every process."""

import inspect
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from project.common.data import data_files, data_prepare, data_schema, data_sources, rows
from project.common.data.data_schema import Columns, Row
from project.common.data.rows import ArrowRows, Transform
from project.common.errors import ConfigError, DataError, refused_by
from project.common.files import fingerprints
from project.common.managers.base import BaseProcessManager, Health
from project.common.processes import stop
from project.common.processes.identity import Role
from project.common.whitelist import instantiate

if TYPE_CHECKING:
    from datasets import Dataset
    from numpy.typing import NDArray

    from project.common.managers.directory import DirectoryManager
    from project.common.managers.tokenizer import TokenizerManager

ON_EMPTY = ("error", "drop")
_SHOWN = 3  # files named in an error


class DataManager(BaseProcessManager):
    """Prepares the task's data and opens it. Every file of it is read-only and mapped, so all processes share it.

    Args:
        directory: For the cache.
        tokenizer: For the text column; None for data without text.
        source: Node of a function that returns rows (dicts), or a mapping from split to rows.
        files: Files, folders, globs, hub names or a mapping from split to these; they win over `source`.
        columns: What `data_schema.Columns` takes: which column is text, label, group, features.
        split: Node of a function from rows to a mapping from split to rows; for rows whose split nobody gives.
        encoding: Of files with text.
        max_length: Longer texts are cut to this many tokens.
        pack: Joins texts into blocks of exactly `max_length` tokens, for language modelling.
        on_empty: Rows with an empty field are an `error`, or left out by `drop`.
        stream: Node of a function or class that gives training rows (dicts), the same ones in every process that asks;
            it is told the `epoch` if it has such a parameter. The split `train` is then what the tokenizer and the
            labels come from. None trains on the split.
        transform: Node of a function `(row, generator)` that changes a row whenever it is read; what it draws follows
            from seed, epoch and row. `vocab_size`, `mask_token_id` and `special_token_ids` are passed where it has such
            a parameter. None changes nothing.
    """

    name: ClassVar[str] = "data"
    roles: ClassVar[frozenset[Role]] = frozenset({Role.RANK, Role.WORKER})

    def __init__(
        self,
        *,
        directory: "DirectoryManager",
        tokenizer: "TokenizerManager | None" = None,
        source: Mapping[str, Any] | None = None,
        files: data_sources.Files | None = None,
        columns: Mapping[str, str | None] | None = None,
        split: Mapping[str, Any] | None = None,
        encoding: str = "utf-8",
        max_length: int | None = None,
        pack: bool = False,
        on_empty: str = "error",
        stream: Mapping[str, Any] | None = None,
        transform: Mapping[str, Any] | None = None,
    ) -> None:
        self._directory = directory
        self._tokenizer = tokenizer if tokenizer is not None and tokenizer.is_configured else None
        self._source = source
        self._files = files
        self._columns = _columns(columns or {})
        self._split = split
        self._encoding = encoding
        self._max_length = max_length
        self._pack = pack
        self._on_empty = on_empty
        self._stream = stream
        self._transform = transform
        self._check_settings()
        self._lock = threading.RLock()
        self._folder: Path | None = None
        self._fingerprint = ""
        self._meta: dict[str, Any] = {}

    def _check_settings(self) -> None:
        columns, has_blocks = self._columns, self._max_length is not None and self._columns.label is None
        checks = {
            "task.data.files: neither files nor a source is given; name your files or a source._target_": (
                self._source is None and not self._files
            ),
            f"managers.data.on_empty: {self._on_empty!r} is unknown; use {' or '.join(ON_EMPTY)}": (
                self._on_empty not in ON_EMPTY
            ),
            "task.data.columns: neither text nor features is named; a row would hold nothing": (
                columns.text is None and columns.features is None
            ),
            "task.data.columns.text: there is no tokenizer; set task.tokenizer, or this to null": (
                columns.text is not None and self._tokenizer is None
            ),
            f"task.data.max_length: {self._max_length} tokens; use 1 or more, or null to cut nothing": (
                self._max_length is not None and self._max_length < 1
            ),
            "task.data.pack: blocks need a max_length and have no label; set task.data.columns.label=null": (
                self._pack and not has_blocks
            ),
            "task.data.transform: changes rows of files, not of a stream; set it or task.data.stream to null": (
                self._transform is not None and self._stream is not None
            ),
        }
        problems = [problem for problem, is_there in checks.items() if is_there]
        if problems:
            raise ConfigError(*problems)

    def prepare(self) -> None:
        """Makes the data ready, once per machine; others wait, and later calls and processes find it. Idempotent.

        The other methods call it. It trains the tokenizer, if that is configured and not done.

        Raises:
            DataError: the data is missing, empty or malformed.
        """
        with self._lock:
            if self._folder is not None:
                return
            source = self._fingerprint_of_source()
            read = cache(self._read)
            tokenizer = None
            if self._tokenizer is not None and self._columns.text is not None:
                self._tokenizer.prepare(lambda: [row["text"] for row in read()["train"]], fingerprint=source)
                tokenizer = self._tokenizer.fingerprint
            self._fingerprint = fingerprints.fingerprint(source, tokenizer, self._max_length, self._pack)
            folder = self._directory.create_once(
                f"data/{self._fingerprint}",
                lambda path: data_prepare.write_splits(path, read(), recipe=self._recipe()),
            )
            self._meta = data_prepare.read_meta(folder)
            self._folder = folder

    def _fingerprint_of_source(self) -> str:
        """Of what the rows of each split depend on: cheap, because every process asks."""
        modules = (__name__, *(m.__name__ for m in (data_files, data_prepare, data_schema, data_sources, rows)))
        return fingerprints.fingerprint(
            None if self._files else fingerprints.of_target(self._source),
            self._files,
            fingerprints.of_files(data_sources.files_of(self._files)),
            fingerprints.of_target(self._split),
            vars(self._columns),
            [self._encoding, self._on_empty],
            fingerprints.of_code(*modules),
            fingerprints.versions_of("datasets", "pyarrow"),
        )

    def _read(self) -> dict[str, list[Row]]:
        """Returns the rows of each split: read, checked and split."""
        stop.raise_if_stop_requested()
        found = data_sources.read_files(self._files, encoding=self._encoding) if self._files else self._read_source()
        as_rows = partial(data_schema.as_rows, columns=self._columns, on_empty=self._on_empty)
        rows_of = {name: as_rows(part) for name, part in found.items()}
        return data_schema.split_rows(rows_of, split=self._do_split, **self._origin())

    def _origin(self) -> dict[str, str]:
        """The first files of the training rows, for a message."""
        files = self._files.get("train") if isinstance(self._files, Mapping) else self._files
        names = [str(path) for path in data_sources.files_of(files)[:_SHOWN]]
        return {"origin": ", ".join(names)} if names else {}

    def _read_source(self) -> dict[str, list[data_files.Record]]:
        assert self._source is not None
        try:
            given = instantiate({**self._source, "_partial_": True})()
        except (ValueError, TypeError, OverflowError) as error:
            raise DataError(f"task.data.source: {error}") from error
        return data_sources.read_rows(given, origin=str(self._source["_target_"]).rpartition(".")[2])

    def _do_split(self, unsplit: list[Row]) -> Mapping[str, Sequence[Row]]:
        if self._split is None:
            raise DataError(
                "task.data.split: null, but no files are named for train and val; name them as "
                "task.data.files={train: ..., val: ...}, or set task.data.split"
            )
        parts: Mapping[str, Sequence[Row]] = instantiate({**self._split, "_partial_": True})(unsplit)
        return parts

    def _recipe(self) -> data_prepare.Recipe:
        recipe = data_prepare.Recipe(
            columns=self._columns, max_length=self._max_length, pack=self._pack, on_empty=self._on_empty
        )
        if self._tokenizer is None or self._columns.text is None:
            return recipe
        # Packed texts are joined before they are cut.
        encode = partial(self._tokenizer.encode, max_length=None if self._pack else self._max_length)
        return replace(recipe, encode=encode, end_token_id=self._tokenizer.end_token_id)

    def rows(self, split: str, *, transform: Transform | None = None, seed: int = 0) -> ArrowRows:
        """Returns the split as what DataLoader workers get: pickled it is a path. See `ArrowRows`."""
        return ArrowRows(self.path(split), transform=transform, seed=seed)

    def changed_rows(self, split: str, *, seed: int) -> ArrowRows:
        """Returns the split as it is trained on: its rows are changed as the task's `transform` says."""
        return self.rows(split, transform=self._make_transform(), seed=seed)

    def _make_transform(self) -> Transform | None:
        if self._transform is None:
            return None
        with refused_by("task.data.transform"):
            make = instantiate({**self._transform, "_partial_": True})
        given = {} if self._tokenizer is None else self._tokenizer.sizes()
        wanted = inspect.signature(make.func).parameters.keys() - make.keywords.keys()
        return partial(make, **{name: value for name, value in given.items() if name in wanted})

    @property
    def is_streamed(self) -> bool:
        """Whether training rows come from a stream."""
        return self._stream is not None

    def stream(self, *, epoch: int) -> Iterator[Row]:
        """Reads the stream once, from its beginning; rows are checked as they come."""
        assert self._stream is not None
        make = instantiate({**self._stream, "_partial_": True})
        given = {"epoch": epoch} if "epoch" in inspect.signature(make).parameters else {}
        name = str(self._stream["_target_"]).rpartition(".")[2]
        for record in data_sources.number(make(**given), origin=name):
            yield from data_schema.as_rows([record], columns=self._columns, on_empty=self._on_empty)

    def encode(self, part: Sequence[Row], *, first: int) -> list[dict[str, Any]]:
        """Returns rows of a stream as `rows` gives those of a split; the first one has number `first`."""
        labels = self.labels
        for row in part:
            if "label" in row and row["label"] not in labels:
                raise DataError(
                    f"task.data.stream: {row['where']}: label '{row['label']}' is not in the split train; "
                    f"labels there: {', '.join(labels[:12])}"
                )
        stored = replace(self._recipe(), on_empty="error").rows(part, labels=labels)
        return [{name: row[name] for name in row if name != "text"} | {"row": first + row["row"]} for row in stored]

    def dataset(self, split: str) -> "Dataset":
        """Returns the split as a mapped Hugging Face dataset: `input_ids`, `label`, `row`, `length`, `text`."""
        from datasets import Dataset

        return Dataset.from_file(str(self.path(split)))

    def path(self, split: str) -> Path:
        """Returns the split's Arrow file."""
        self.prepare()
        if split not in self._meta["n_rows"]:
            raise DataError(f"task.data: there is no split '{split}'; there are {', '.join(self.splits)}")
        assert self._folder is not None
        return self._folder / f"{split}.arrow"

    @property
    def splits(self) -> list[str]:
        """Names of the splits; `train` is always there, `val` and `test` if the data has them."""
        self.prepare()
        return list(self._meta["n_rows"])

    @property
    def labels(self) -> list[str]:
        """The classes; a row's `label` is its class's place here. Empty without a label column."""
        self.prepare()
        return list(self._meta["labels"])

    @property
    def fingerprint(self) -> str:
        """Of the prepared data: its rows, splits, tokens and labels."""
        self.prepare()
        return self._fingerprint

    def n_rows(self, split: str) -> int:
        """Returns how many rows a split has; 0 for one that is not there."""
        self.prepare()
        return int(self._meta["n_rows"].get(split, 0))

    def lengths(self, split: str) -> "NDArray[Any]":
        """Returns the number of tokens of each row."""
        return self.rows(split).column("length")

    def texts(self, split: str) -> list[str]:
        """Returns the text of each row, for predictions."""
        return self.rows(split).texts()

    def check(self) -> Health:
        """Whether the data is ready."""
        if self._folder is None:
            return Health(ok=True, reason="prepared when first asked for")
        missing = [split for split in self._meta["n_rows"] if not (self._folder / f"{split}.arrow").is_file()]
        if missing:
            return Health(
                ok=False, reason=f"{self._folder}: {', '.join(missing)} vanished; call prepare() in a new run"
            )
        return Health(ok=True, reason=f"{self._meta['n_rows']} in {self._folder}")

    def close(self) -> None:
        """Forgets what was opened; the prepared files stay in the cache."""
        self._folder = None


def _columns(columns: Mapping[str, str | None]) -> Columns:
    known = [field.name for field in fields(Columns)]
    unknown = sorted(set(columns) - set(known))
    if unknown:
        raise ConfigError(f"task.data.columns.{unknown[0]}: is unknown; there are {', '.join(known)}")
    return Columns(**columns)
