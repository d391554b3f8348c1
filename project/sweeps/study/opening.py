"""Opens or makes a study, by one process at a time, and sees that folder and study belong together."""

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage

from project.common.errors import ConfigError
from project.common.files.atomic import atomic_file
from project.sweeps.study.connecting import connect, make_folder, refused
from project.sweeps.study.exclusive import Section
from project.sweeps.study.patience import Patience
from project.sweeps.study.section_locks import lock_of_study, lock_of_tables
from project.sweeps.study.storage import Place, locate

FOLDER_ID = "folder_id"
FOLDER_FILE = ".study_id"


@dataclass(frozen=True, kw_only=True)
class OpenedStudy:
    """A study that is there, and what is needed to work on it."""

    study: optuna.Study
    storage: BaseStorage
    place: Place
    patience: Patience
    section: Section


def open_study(
    storage: Any,
    *,
    study_name: str,
    sweep_dir: Path,
    directions: list[str],
    strategy: dict[str, Any],
    timeout_s: float,
    running: Callable[[], list[int]],
) -> OpenedStudy:
    """Opens the study, or makes it; its folder is there afterwards.

    Args:
        storage: See `storage.locate`.
        study_name: Unique in the storage.
        sweep_dir: Absolute.
        directions: `minimize` or `maximize`, one for each objective.
        strategy: `sampler` and `pruner`.
        timeout_s: How long the storage may not answer, later.
        running: Numbers of the trials that run here.

    Raises:
        ConfigError: The storage cannot be opened, or keeps another study under this name.
    """
    place = locate(storage, sweep_dir=sweep_dir)
    make_folder(sweep_dir)
    patience = Patience(place=place, timeout_s=timeout_s, running=running)
    with refused(place):
        tables = Section(lock_of_tables(place), patience)
        section = Section(lock_of_study(place, study_name=study_name, sweep_dir=sweep_dir), patience)
    try:
        with refused(place), tables.held(), section.held():
            backend = connect(place)
            study = optuna.create_study(
                storage=backend, study_name=study_name, directions=directions, load_if_exists=True, **strategy
            )
            _check_directions(study, directions)
            _belong_together(study, sweep_dir)
    except BaseException:
        section.close()
        raise
    finally:
        tables.close()
    return OpenedStudy(study=study, storage=backend, place=place, patience=patience, section=section)


def _check_directions(study: optuna.Study, directions: list[str]) -> None:
    stored = [direction.name.lower() for direction in study.directions]
    if stored != list(directions):
        raise ConfigError(
            f"hydra.sweeper.direction: {', '.join(stored)} → {', '.join(directions)} (old → new); the study "
            f"{study.study_name!r} keeps those that it was made with, even before its first trial; give the old ones, "
            "or begin a new study by hydra.sweeper.study_name"
        )


def _belong_together(study: optuna.Study, sweep_dir: Path) -> None:
    """Refuses a folder that holds the trials of another study: trial numbers would meet folders that are not theirs."""
    file = sweep_dir / FOLDER_FILE
    in_folder = file.read_text(encoding="utf-8").strip() if file.exists() else None
    in_study = study.user_attrs.get(FOLDER_ID)
    if in_folder not in (None, in_study) and _has_trials(sweep_dir):
        raise ConfigError(
            f"hydra.sweeper.study_name: {sweep_dir} holds the trials of another study of this name; "
            "give another name, give back that study's storage, or move the folder away"
        )
    folder_id = in_study or in_folder or uuid.uuid4().hex
    if in_folder != folder_id:
        with atomic_file(file) as written:
            written.write(folder_id)
    if in_study is None:
        study.set_user_attr(FOLDER_ID, folder_id)


def _has_trials(sweep_dir: Path) -> bool:
    return any(re.fullmatch(r"\d+", entry.name) for entry in sweep_dir.iterdir())
