"""Log files: every line of every process once in `run.log` and once in the process's own file; the terminal is quiet.

A line says when, how grave, which role and rank, and which pid. Each record is written by one `write` to a file that is
open for appending, so lines of several processes never mix.
"""

import logging
import os
import sys
from pathlib import Path
from typing import Any

from project.common.files.layout import RunLayout
from project.common.files.secrets import mask_text
from project.common.processes.identity import Identity, Role

FORMAT = "%(asctime)s %(levelname)-7s {label:<14} {pid} %(name)s: %(message)s"
TERMINAL_FORMAT = "%(message)s"
# Third-party chatter that says nothing about the run.
QUIET = ("httpx", "urllib3", "filelock", "fsspec", "asyncio", "torch.distributed", "matplotlib")


class AppendHandler(logging.Handler):
    """Writes each record by one `write` call to a file open for appending."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def fileno(self) -> int:
        """The open file's descriptor."""
        return self._fd

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record; a full disk loses the line, never the run."""
        try:
            text = mask_text(self.format(record)) + "\n"
            os.write(self._fd, text.encode("utf-8", "backslashreplace"))
        except Exception:  # noqa: BLE001 - the convention of logging.Handler
            self.handleError(record)

    def close(self) -> None:
        """Closes the file; may be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        super().close()


_handlers: list[logging.Handler] = []
_levels: dict[str, int] = {}  # of the loggers whose level we set, as it was before


class TerminalHandler(logging.StreamHandler[Any]):
    """Shows our own lines on the terminal, through whatever stderr is now: a progress bar replaces it for a while."""

    def __init__(self) -> None:
        logging.Handler.__init__(self, logging.INFO)
        self.setFormatter(logging.Formatter(TERMINAL_FORMAT))
        self.addFilter(lambda record: record.name.startswith("project") and getattr(record, "terminal", True))

    @property
    def stream(self) -> Any:
        """The present stderr."""
        return sys.stderr

    def format(self, record: logging.LogRecord) -> str:
        """The line, secrets masked."""
        return mask_text(super().format(record))


def set_up_terminal() -> None:
    """Shows our own log lines on the terminal."""
    if not any(isinstance(handler, TerminalHandler) for handler in _handlers):
        _install(TerminalHandler())


def set_up_files(identity: Identity) -> None:
    """Sends this process's log to the run's files."""
    if identity.run_dir is None:
        return
    layout = RunLayout(Path(identity.run_dir))
    layout.logs_dir.mkdir(exist_ok=True)  # not the run's folder, which may have been removed
    formatter = logging.Formatter(FORMAT.format(label=identity.label, pid=os.getpid()))
    for path in (layout.run_log, layout.process_log(identity.label, os.getpid())):
        handler = AppendHandler(path)
        handler.setFormatter(formatter)
        _install(handler)
    logging.captureWarnings(True)


def _install(handler: logging.Handler) -> None:
    root = logging.getLogger()
    root.addHandler(handler)
    if root.level > logging.INFO or root.level == logging.NOTSET:
        _set_level("root", logging.INFO)
    for name in QUIET:
        _set_level(name, logging.WARNING)
    _handlers.append(handler)


def _set_level(name: str, level: int) -> None:
    logger = logging.getLogger(name)
    if logger.level != level:  # setting one empties the caches of all loggers
        _levels.setdefault(name, logger.level)
        logger.setLevel(level)


def tear_down() -> None:
    """Removes and closes our handlers, and restores the levels."""
    root = logging.getLogger()
    while _handlers:
        handler = _handlers.pop()
        root.removeHandler(handler)
        handler.close()
    while _levels:
        name, level = _levels.popitem()
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(False)


def shows_on_terminal(identity: Identity) -> bool:
    """Whether this process may write to the terminal: main, a single trial and rank 0."""
    return identity.role in (Role.MAIN, Role.TRIAL) or (identity.role is Role.RANK and not identity.rank)


def redirect_output(identity: Identity) -> None:
    """Sends what this process prints, native code included, to its log file: there are others on the terminal."""
    if identity.run_dir is None:
        return
    path = RunLayout(Path(identity.run_dir)).process_log(identity.label, os.getpid())
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        for stream, target in ((sys.stdout, 1), (sys.stderr, 2)):
            if stream is not None:
                stream.flush()
            os.dup2(fd, target)
    finally:
        os.close(fd)


def drop_what_nobody_reads() -> None:
    """Lets a closed pipe or a full disk behind stdout or stderr not decide how a process ends, which flushes them."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), number)
        except ValueError:  # closed
            continue
