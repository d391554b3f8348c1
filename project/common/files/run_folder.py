"""Which folder a run gets: a new one, or one that an earlier attempt left unfinished. Used by main alone."""

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from project.common.errors import ConfigError, ProjectError
from project.common.files.atomic import remove_stale_temporaries
from project.common.files.layout import RunLayout
from project.common.files.ownership import FolderLock
from project.common.files.secrets import mask_config
from project.common.plain_config import differences
from project.common.process_registry import read_run
from project.common.processes.outcome import Status

# What may differ between two attempts at one run: where things lie, how they are shown, how processes are kept.
NOT_IN_FINGERPRINT = ("paths", "resume", "hydra", "logger", "processes", "tags", "notes", "print_config")
_PATHS_OF_MANAGERS = ("runs_dir", "cache_dir")
# Batches are the same whoever prepares them.
_WORKERS = ("num_workers", "num_workers_eval", "persistent_workers", "prefetch_factor", "timeout_s", "pin_memory")
_SHOWN = 4  # differences named in an error


@dataclass(kw_only=True)
class RunFolder:
    """A run's folder, owned by this process.

    Args:
        layout: Its file names.
        attempt: 1 for a new folder, one more each time that it is taken up.
        lock: Held until the end of the run.
        found: Why it was taken up: the earlier outcome's status or `killed`; None for a new folder.
    """

    layout: RunLayout
    attempt: int
    lock: FolderLock
    found: str | None = None

    def was_used(self) -> bool:
        """Whether any work was done in it: an earlier attempt, or one step of this one."""
        return self.found is not None or any(
            (record.heartbeat or {}).get("step") for record in read_run(self.layout.run_dir)
        )

    def is_gone(self) -> bool:
        """Whether it was removed or replaced while this process owned it; one made anew lacks the fingerprint."""
        return not self.layout.fingerprint.is_file()

    def remove(self) -> None:
        """Removes it, and the folders above that it leaves empty: for a run that could not begin."""
        folder = self.layout.run_dir
        shutil.rmtree(folder, ignore_errors=True)
        for above in (folder.parent, folder.parent.parent):
            with contextlib.suppress(OSError):
                os.rmdir(above)


def fingerprint(config: dict[str, Any]) -> str:
    """What has to be equal for one attempt to go on where another one ended."""
    return hashlib.sha256(json.dumps(_compared(config), sort_keys=True, default=str).encode()).hexdigest()[:16]


def _compared(config: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in config.items() if key not in NOT_IN_FINGERPRINT}
    managers = {name: node for name, node in (kept.get("managers") or {}).items() if name != "wandb"}
    kept["managers"] = {name: _without(node, _PATHS_OF_MANAGERS) for name, node in managers.items()}
    return kept | {"loader": _without(kept.get("loader"), _WORKERS)}


def _without(node: Any, keys: tuple[str, ...]) -> Any:
    return {key: value for key, value in node.items() if key not in keys} if isinstance(node, dict) else node


def changes_no_result(key: str) -> bool:
    """Whether an override of this key leaves all results as they are: two attempts at one run may differ in it."""
    parts = key.replace("/", ".").split("@")[0].split(".")
    match parts:
        case ["managers", "wandb" | "directory", *_]:
            return True
        case ["managers", _, name, *_]:
            return name in _PATHS_OF_MANAGERS
        case ["loader", name, *_]:
            return name in _WORKERS
    return parts[0] in NOT_IN_FINGERPRINT


def choose_run_folder(config: dict[str, Any], *, given: Path | None = None) -> RunFolder:
    """Takes up or makes the folder of this run, and owns it.

    Args:
        given: The folder, where somebody else chooses: it is made, or taken up when it is this run's own.

    Raises:
        ConfigError: `resume` names a folder that cannot be taken up, or another run lies in the given one.
    """
    wanted, resume = fingerprint(config), config["resume"]
    if given is not None:
        return _take_up(given, wanted) or _make_given(given, wanted)
    parent = Path(config["paths"]["runs_dir"]).absolute() / config["name"]
    if resume == "auto":
        for folder in sorted(parent.glob("*"), reverse=True):
            taken = _take_up(folder, wanted)
            if taken is not None:
                return taken
    elif resume != "never":
        return _take_up_named(Path(resume), config, wanted)
    return _make(_new_folder(parent), wanted)


def _take_up_named(folder: Path, config: dict[str, Any], wanted: str) -> RunFolder:
    stored = RunLayout(folder).fingerprint
    if not stored.is_file():
        raise ConfigError(f"resume: {folder} is not a run folder; give one below paths.runs_dir, auto or never")
    if stored.read_text() != wanted:
        raise ConfigError(f"resume: {folder} ran another configuration{_differing(folder, config)}")
    taken = _take_up(folder, wanted, finished_too=True)
    if taken is None:
        raise ConfigError(f"resume: {folder} is owned by a running process; wait for it, or stop it")
    return taken


def _differing(folder: Path, config: dict[str, Any]) -> str:
    """What the folder's run had otherwise, and what to do."""
    import yaml

    cure = "; give these back, or start a new run from its checkpoint with ckpt_path="
    try:
        stored = yaml.safe_load(RunLayout(folder).config.read_text())
        found = list(differences(_compared(stored), _compared(mask_config(config))))
        found.sort(key=lambda line: line.startswith("managers."))  # most of theirs is taken from elsewhere
    except (OSError, ValueError, AttributeError, yaml.YAMLError):
        return cure.replace("give these back, or ", "")
    more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f" ({', '.join(found[:_SHOWN])}{more}){cure}"


def _take_up(folder: Path, wanted: str, *, finished_too: bool = False) -> RunFolder | None:
    layout = RunLayout(folder)
    try:
        if layout.fingerprint.read_text() != wanted:
            return None
    except OSError:
        return None
    lock = FolderLock(layout.owner)
    status = _status(layout)
    if (status == Status.COMPLETED and not finished_too) or not lock.acquire():
        return None
    status = _status(layout)  # its owner may have finished between the two looks
    if status == Status.COMPLETED and not finished_too:
        lock.release()
        return None
    for written in layout.written_dirs():
        remove_stale_temporaries(written)
    # Not the number of records: a container's main has the same pid, hence the same record, at every attempt.
    attempt = 1 + max((record.identity.attempt for record in read_run(folder)), default=1)
    return RunFolder(layout=layout, attempt=attempt, lock=lock, found=status or "killed")


def _status(layout: RunLayout) -> str | None:
    try:
        status: str = json.loads(layout.outcome.read_text())["status"]
    except (OSError, ValueError, KeyError):
        return None
    return status


def _make_given(folder: Path, wanted: str) -> RunFolder:
    """Owns the folder, in which there may be checkpoints that somebody put there to go on from, and no run."""
    layout = RunLayout(folder)
    if layout.fingerprint.exists() or layout.config.exists():
        raise ConfigError(f"{folder} holds another run; give another hydra.sweep.dir or hydra.sweep.subdir")
    goes_on = any(layout.checkpoint(name).is_file() for name in ("best", "last"))
    return _make(folder, wanted, attempt=2 if goes_on else 1)


def _new_folder(parent: Path) -> Path:
    return parent / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{uuid.uuid4().hex[:6]}"


def _make(folder: Path, wanted: str, *, attempt: int = 1) -> RunFolder:
    layout = RunLayout(folder)
    try:
        layout.make()
        lock = FolderLock(layout.owner)
        if not lock.acquire():
            raise ProjectError(f"{folder}: a new folder is owned already; try again")
        layout.fingerprint.write_text(wanted)
    except OSError as error:
        _remove_empty(folder, layout)
        raise ConfigError(
            f"paths.runs_dir: {folder.parent} cannot be written to ({error.strerror}); give a folder that can"
        ) from error
    return RunFolder(layout=layout, attempt=attempt, lock=lock)


def _remove_empty(folder: Path, layout: RunLayout) -> None:
    for path in (layout.fingerprint, layout.owner):
        with contextlib.suppress(OSError):
            path.unlink()
    for path in (layout.checkpoints_dir, layout.processes_dir, layout.logs_dir, folder):
        with contextlib.suppress(OSError):
            os.rmdir(path)
