"""A tokenizer as files, and as bytes that travel in a checkpoint."""

import copy
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from project.common.errors import CheckpointError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def load(place: str | os.PathLike[str]) -> "PreTrainedTokenizerFast":
    """Returns the fast tokenizer of a folder or hub name; code that comes with one is never run.

    Raises:
        OSError: there is none.
        ValueError: it is not a fast one.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(os.fspath(place), use_fast=True, trust_remote_code=False)
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"{place} is a {type(tokenizer).__name__}, which has no tokenizer.json")
    return tokenizer


def state_of(tokenizer: "PreTrainedTokenizerFast") -> str:
    """Returns what the tokenizer does as JSON, without the truncation and padding of its last call."""
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.no_padding()
    backend.no_truncation()
    return str(backend.to_str())


def to_bytes(tokenizer: "PreTrainedTokenizerFast") -> bytes:
    """Returns the files of a tokenizer, as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        files = {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(folder).iterdir())}
    return json.dumps(files, ensure_ascii=False).encode()


def from_bytes(data: bytes) -> "PreTrainedTokenizerFast":
    """The inverse of `to_bytes`.

    Raises:
        CheckpointError: this is no tokenizer.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name, text in json.loads(data).items():
                # What a checkpoint calls a file is a name, never a path.
                (Path(folder) / Path(name).name).write_text(text, encoding="utf-8")
            return load(folder)
        except (ValueError, AttributeError, TypeError, OSError) as error:
            raise CheckpointError(
                f"tokenizer: the checkpoint's is damaged ({error}); use another checkpoint"
            ) from error
