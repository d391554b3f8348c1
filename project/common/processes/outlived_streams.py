"""Output streams that outlive their reader: a closed pipe, a terminal that is gone or a full disk ends no run."""

import io
import os
import sys
from typing import Any


class _OutlivingFile(io.FileIO):
    """What cannot be written is lost, and from then on all that this process and its children write there."""

    def write(self, data: Any, /) -> int:
        try:
            written: int | None = super().write(data)
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.dup2(nowhere, self.fileno())
            finally:
                os.close(nowhere)
            written = None
        return memoryview(data).nbytes if written is None else written


def outlive_readers() -> None:
    """Lets stdout and stderr of this process be such streams; replaced ones, as in a notebook or test, are left."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper and not isinstance(getattr(stream.buffer, "raw", None), _OutlivingFile):
            setattr(sys, name, _outliving(stream))


def _outliving(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    try:
        stream.flush()
        file = _OutlivingFile(stream.fileno(), "w", closefd=False)
    except OSError:  # nobody reads already, or it is closed
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
        write_through=stream.write_through,
    )
