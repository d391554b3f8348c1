"""Checkpoint files that one can trust: written beside and moved into place, with a checksum that loading verifies.

The checksum stands behind the archive, in the same file, so that no crash can part the two. torch reads the archive
from its own end record and passes over what follows.
"""

import hashlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

from project.common.errors import CheckpointError, StorageError
from project.common.files.atomic import atomic_file
from project.common.files.disk import NO_SPACE
from project.common.files.loadable import as_loadable

log = logging.getLogger(__name__)

_MARK = b"\nproject-checkpoint-blake2b:"
_DIGEST_BYTES = 16
_TRAILER_BYTES = len(_MARK) + 2 * _DIGEST_BYTES
_CHUNK_BYTES = 1 << 20


class _HashingWriter:
    """Passes bytes on and remembers their checksum and the first error, which torch would replace by its own."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            self.file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise
        self.digest.update(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        self.file.flush()


def save_checkpoint_file(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Replaces `path`, whole or not at all.

    Args:
        path: The file.
        state: Tensors and plain containers; paths, enumerations and NumPy's numbers become plain, too.

    Raises:
        StorageError: It could not be written (a full disk, for instance). The old file is untouched.
    """
    path = Path(path)
    try:
        path.parent.mkdir(exist_ok=True)  # not those above: a run's folder that was removed is not made anew
        with atomic_file(path, mode="wb") as file:
            _write(file, state)
        _flush_folder(path.parent)
    except OSError as error:
        kept = "; the checkpoint that was there is intact" if path.exists() else ""
        raise StorageError(f"{path}: could not be written, {_cause(error)}{kept}") from error


def _write(file: IO[bytes], state: Mapping[str, Any]) -> None:
    import torch

    writer = _HashingWriter(file)
    try:
        torch.save(as_loadable(dict(state)), cast(IO[bytes], writer))
    except Exception:
        if writer.error is not None:
            raise writer.error from None
        raise
    if writer.error is not None:
        raise writer.error
    file.write(_MARK + writer.digest.hexdigest().encode())


def _cause(error: OSError) -> str:
    if error.errno in NO_SPACE:
        return "no space left on the disk; free some, or set paths.runs_dir to another one"
    return error.strerror or str(error)


def _flush_folder(folder: Path) -> None:
    """Makes the move itself survive a power cut."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_intact(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a checkpoint of ours whose checksum fits."""
    try:
        return verify_checksum(path)
    except CheckpointError:
        return False


def verify_checksum(path: str | os.PathLike[str]) -> bool:
    """True if the checksum fits, False if the file has none (other programs wrote it, or it was cut off).

    Raises:
        CheckpointError: The file is missing, or is not what was written.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(max(0, size - _TRAILER_BYTES))
            trailer = file.read()
            if not trailer.startswith(_MARK):
                return False
            file.seek(0)
            found = _digest(file, size - _TRAILER_BYTES)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}; give the path of a .ckpt file") from error
    if found != trailer[len(_MARK) :].decode(errors="replace"):
        raise CheckpointError(f"{path}: damaged, its checksum does not fit; take another checkpoint")
    return True


def _digest(file: IO[bytes], n_bytes: int) -> str:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    while n_bytes > 0 and (chunk := file.read(min(_CHUNK_BYTES, n_bytes))):
        digest.update(chunk)
        n_bytes -= len(chunk)
    return digest.hexdigest()


def load_checkpoint_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Content of a checkpoint, on the CPU.

    Args:
        path: Written by `save_checkpoint_file`, or by Lightning itself.

    Raises:
        CheckpointError: Missing, damaged, cut off, or holding other objects.
    """
    import pickle

    import torch

    has_checksum = verify_checksum(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(_refusal(path, error) if _is_archive(path) else _broken(path)) from error
    except Exception as error:
        raise CheckpointError(_broken(path)) from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: holds a {type(state).__name__}; a checkpoint is a dict with 'state_dict'")
    if not has_checksum:
        log.info("%s has no checksum: another program wrote it", path)
    return state


def _is_archive(path: str | os.PathLike[str]) -> bool:
    with Path(path).open("rb") as file:
        return file.read(2) == b"PK"


def _broken(path: str | os.PathLike[str]) -> str:
    return f"{path}: cut off or not a checkpoint ({Path(path).stat().st_size} bytes); take another checkpoint"


def _refusal(path: str | os.PathLike[str], error: Exception) -> str:
    found = next((line.strip() for line in str(error).splitlines() if "GLOBAL" in line), "objects that are not plain")
    return (
        f"{path}: holds more than tensors and plain containers ({found}); "
        "if you trust who made it, save its weights alone, once: "
        "torch.save({'state_dict': torch.load(PATH, weights_only=False)['state_dict']}, NEW_PATH)"
    )
