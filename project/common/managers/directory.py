"""Where a run's files go: its folder, the cache of this machine, and files that are whole or not there."""

import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, ClassVar

from project.common.config_surroundings import name_problem
from project.common.errors import ConfigError, NotInitializedError
from project.common.files import atomic, disk, once
from project.common.files.layout import RunLayout
from project.common.managers.base import BaseProcessManager, Health
from project.common.process_registry import folder_is_gone
from project.common.processes import handover
from project.common.processes.identity import Role, current_identity, set_identity
from project.common.processes.tree_folder import machine_folder

log = logging.getLogger(__name__)

PACKAGE = __name__.partition(".")[0]
TIME_FORMAT = "%Y-%m-%d_%H-%M-%S"  # no colons: Windows refuses them, and so do many copying tools


class DirectoryManager(BaseProcessManager):
    """Names, makes and fills the run's folder and the cache.

    The run folder is the one that this process was handed; the first process of a run makes it when it first asks.

    Args:
        name: Name of the run, one folder below `runs_dir`.
        runs_dir: Relative to where the command was typed.
        cache_dir: What all runs of this machine share; None for `$XDG_CACHE_HOME/project` or `~/.cache/project`.
        min_free_mb: A run with less free space does not start.
        create_timeout_s: How long to wait for another process that makes something shared, such as prepared data.
    """

    name: ClassVar[str] = "directory"
    roles: ClassVar[frozenset[Role]] = frozenset({Role.MAIN, Role.TRIAL, Role.RANK, Role.WORKER})

    def __init__(
        self,
        *,
        name: str,
        runs_dir: str,
        cache_dir: str | None = None,
        min_free_mb: float = 100.0,
        create_timeout_s: float = 3600.0,
    ) -> None:
        if problem := name_problem(name):
            raise ConfigError(problem)
        self.runs_dir = start_dir() / Path(runs_dir).expanduser()
        self._run_name = name
        self._asked_cache_dir = cache_dir
        self.min_free_mb = min_free_mb
        self.create_timeout_s = create_timeout_s
        self._lock = threading.RLock()  # two threads that ask first get one run folder
        self._layout: RunLayout | None = None
        self._cache_dir: Path | None = None

    @property
    def layout(self) -> RunLayout:
        """Every file name of this run's folder, which is there."""
        with self._lock:
            self._layout = self._layout or self._find_or_make()
        return self._layout

    @property
    def run_dir(self) -> Path:
        """This run's folder, absolute."""
        return self.layout.run_dir

    @property
    def cache_dir(self) -> Path:
        """What all runs of this machine share, absolute; in the system's temporary folder if it cannot be written."""
        with self._lock:
            self._cache_dir = self._cache_dir or self._writable_cache_dir()
        return self._cache_dir

    def create_once(self, path: str | os.PathLike[str], build: Callable[[Path], None]) -> Path:
        """Returns `path` after exactly one process of this machine has run `build`; the others wait, and say so.

        Args:
            path: A file or folder; a relative one lies in the cache.
            build: Gets a path that does not exist yet, and makes a file or folder there.
        """
        return once.create_once(self.cache_dir / path, build, timeout_s=self.create_timeout_s)

    def require_free(self, mb: float, why: str) -> None:
        """Raises `DiskSpaceError` unless `mb` megabytes are free for this run; `why` reads like `to save a model`."""
        disk.require_free(self.run_dir, mb, why)

    def open_atomic(self, path: str | os.PathLike[str], *, mode: str = "w") -> AbstractContextManager[IO[Any]]:
        """Opens a file that replaces `path` when the block ends well; a relative path lies in the run folder."""
        return atomic.atomic_file(self.place(path), mode=mode)

    def place(self, path: str | os.PathLike[str]) -> Path:
        """Where a file of the run is to lie, in a folder that is there.

        Raises:
            StorageError: The run's folder was removed; it is not made anew.
        """
        run_dir = self.run_dir
        if not run_dir.is_dir():
            raise folder_is_gone(run_dir)
        target = run_dir / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def write_text(self, path: str | os.PathLike[str], text: str) -> Path:
        """Writes a file of the run that is old or new, never torn; returns its path."""
        return self._write(path, text, mode="w")

    def write_bytes(self, path: str | os.PathLike[str], data: bytes) -> Path:
        """As `write_text`, for bytes."""
        return self._write(path, data, mode="wb")

    def write_json(self, path: str | os.PathLike[str], value: Any) -> Path:
        """As `write_text`, for plain data."""
        target = self.place(path)
        with disk.explain_full_disk(target.parent, target.name):
            atomic.write_json(target, value)
        return target

    def check(self) -> Health:
        """Whether the run's folder can be written and has `min_free_mb` left. Makes no folder."""
        made = self._layout
        folder = made.run_dir if made else self.runs_dir
        free = disk.free_mb(folder)
        if free < self.min_free_mb:
            return Health(ok=False, reason=f"{folder}: {free:,.0f} MB are free, less than {self.min_free_mb:,.0f} MB")
        problem = disk.is_writable(folder) if made else None
        if problem:
            return Health(ok=False, reason=f"{folder}: cannot be written ({problem})")
        return Health(ok=True, reason=f"{folder}: {free:,.0f} MB are free")

    def _write(self, path: str | os.PathLike[str], content: str | bytes, *, mode: str) -> Path:
        target = self.run_dir / path
        with disk.explain_full_disk(target.parent, target.name), self.open_atomic(target, mode=mode) as file:
            file.write(content)
        return target

    def _find_or_make(self) -> RunLayout:
        handed = self.identity.run_dir
        if handed is None and self.identity.role == Role.WORKER:
            raise NotInitializedError(
                "managers.directory: this worker was given no run folder, and workers make none; "
                "call initialize_factory(config) and get_directory_manager().run_dir in the process that starts it"
            )
        layout = RunLayout(self._new_run_dir() if handed is None else Path(handed))
        if self.identity.role != Role.WORKER:
            self._make(layout)
        return layout

    def _new_run_dir(self) -> Path:
        """Makes a folder of its own for this run and tells every process that is started from here on."""
        disk.require_free(self.runs_dir, self.min_free_mb, "to start a run (managers.directory.min_free_mb)")
        folder = self.runs_dir / self._run_name
        for _ in range(100):
            run_dir = folder / f"{time.strftime(TIME_FORMAT)}-{secrets.token_hex(3)}"
            try:
                run_dir.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise _unwritable(run_dir, error) from error
            self._tell_children(run_dir)
            return run_dir
        raise _unwritable(folder, FileExistsError("a hundred names were taken"))

    def _tell_children(self, run_dir: Path) -> None:
        identity = self.identity.child(run_dir=str(run_dir))
        if current_identity() is not None:
            set_identity(identity)
        if handover.inherited_identity() is not None:
            handover.share_identity(identity)

    def _make(self, layout: RunLayout) -> None:
        try:
            layout.make()
        except OSError as error:
            raise _unwritable(layout.run_dir, error) from error
        problem = disk.is_writable(layout.run_dir)
        if problem:
            raise _unwritable(layout.run_dir, OSError(problem))

    def _writable_cache_dir(self) -> Path:
        wish = self._wished_cache_dir()
        problem = disk.is_writable(wish)
        if problem is None:
            return wish
        fallback = self._fallback_cache_dir()
        log.warning("paths.cache_dir: %s cannot be written (%s); %s is used instead", wish, problem, fallback)
        return fallback

    def _wished_cache_dir(self) -> Path:
        if self._asked_cache_dir is not None:
            return start_dir() / Path(self._asked_cache_dir).expanduser()
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return (start_dir() / Path(base).expanduser() / PACKAGE).absolute()

    def _fallback_cache_dir(self) -> Path:
        """The same for every process of this user, or they would all prepare their own data."""
        user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
        shared = machine_folder() / f"{PACKAGE}-cache-{user}"
        if disk.is_writable(shared) is None and _is_ours(shared):
            return shared
        own = self.run_dir / "cache"
        own.mkdir(exist_ok=True)
        return own


def start_dir() -> Path:
    """Where the command was typed, also when Hydra has changed the working directory since."""
    hydra_config = sys.modules.get("hydra.core.hydra_config")
    if hydra_config is not None and hydra_config.HydraConfig.initialized():
        return Path(hydra_config.HydraConfig.get().runtime.cwd)
    return Path.cwd()


def _is_ours(folder: Path) -> bool:
    """Others can write in the temporary folder too: a place that somebody else has prepared is not trusted."""
    return not hasattr(os, "getuid") or (folder.stat().st_uid == os.getuid() and not folder.is_symlink())


def _unwritable(folder: Path, error: OSError) -> ConfigError:
    reason = error.strerror or str(error)
    return ConfigError(f"paths.runs_dir: cannot write {folder} ({reason}); choose another with paths.runs_dir=...")
