"""Finding and reading the study of a sweep, wherever it is kept."""

import hashlib
import json
import os
from pathlib import Path

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from project.common.errors import ConfigError, ProjectError
from project.sweeps.shown.stored_study import find_place, stored_study
from project.sweeps.study.storage import locate
from tests.helpers.studies import add, new_study


@pytest.fixture
def sweep_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PROJECT_STORAGE", raising=False)
    folder = tmp_path / "100% of a b"
    folder.mkdir()
    return folder


def facts(sweep_dir: Path, **values: str) -> None:
    (sweep_dir / "sweep.json").write_text(json.dumps(values))


def n_trials(sweep_dir: Path) -> int:
    with stored_study(sweep_dir) as (study, _):
        return len(study.trials)


def test_reads_the_file_in_the_folder_and_changes_nothing(sweep_dir: Path) -> None:
    study = new_study(sweep_dir)
    add(study, sweep_dir, values=[1.0])
    file = sweep_dir / "study.db"
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    file.chmod(0o444)

    with stored_study(sweep_dir) as (found, place):
        assert found.best_value == 1.0
        assert place.file == file
        with pytest.raises(StorageInternalError):
            found.set_user_attr("a", 1)

    assert hashlib.sha256(file.read_bytes()).hexdigest() == before
    assert os.listdir(sweep_dir) == ["study.db"]


def test_a_storage_that_fails_later_is_one_line_without_a_traceback(sweep_dir: Path) -> None:
    new_study(sweep_dir)

    def write() -> None:
        with stored_study(sweep_dir) as (found, _):
            found.set_user_attr("a", 1)

    with pytest.raises(ProjectError, match=r"cannot be read now \(attempt to write a readonly"):
        write()


def test_the_file_in_the_folder_comes_before_all_else(sweep_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_study(sweep_dir)
    facts(sweep_dir, study_name="s", storage_masked="sqlite:////nowhere.db")
    monkeypatch.setenv("PROJECT_STORAGE", "sqlite:////nowhere.db")

    assert n_trials(sweep_dir) == 0


def test_reads_what_was_recorded(sweep_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "50% of c"
    add(new_study(other), other, values=[1.0])
    facts(sweep_dir, study_name="s", storage_masked=locate(None, sweep_dir=other).shown)

    assert n_trials(sweep_dir) == 1


def test_reads_a_journal(sweep_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.journal"
    optuna.create_study(storage=JournalStorage(JournalFileBackend(str(file))), study_name="s")
    facts(sweep_dir, study_name="s", storage_masked=f"journal:///{file}")

    assert n_trials(sweep_dir) == 0


def test_the_environment_gives_the_address_with_the_password(sweep_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts(sweep_dir, study_name="s", storage_masked="mysql://me:***@host/db")
    monkeypatch.setenv("PROJECT_STORAGE", f"sqlite:///{sweep_dir}/no.db")

    with pytest.raises(ConfigError, match=r"no\.db: no such file; PROJECT_STORAGE may name"):
        n_trials(sweep_dir)


def test_a_driver_may_know_the_password(sweep_dir: Path) -> None:
    pytest.importorskip("psycopg")
    facts(sweep_dir, study_name="s", storage_masked="postgresql+psycopg://me:***@host/db")

    assert find_place(sweep_dir).url == "postgresql+psycopg://me@host/db"


def test_says_what_is_missing(sweep_dir: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: no such folder"):
        n_trials(sweep_dir / "nowhere")
    with pytest.raises(ConfigError, match=r"no study\.db there, and sweep\.json names no storage"):
        n_trials(sweep_dir)
    facts(sweep_dir, study_name="s", storage_masked="in memory")
    with pytest.raises(ConfigError, match="kept in memory; PROJECT_STORAGE may name"):
        n_trials(sweep_dir)
    (sweep_dir / "study.db").write_text("no database" * 100)
    with pytest.raises(ConfigError, match=r"study\.db cannot be opened"):
        n_trials(sweep_dir)
    (sweep_dir / "sweep.json").write_text("{")
    (sweep_dir / "study.db").unlink()
    with pytest.raises(ConfigError, match=r"sweep\.json: cannot be read"):
        n_trials(sweep_dir)


def test_says_which_studies_there_are(sweep_dir: Path) -> None:
    new_study(sweep_dir, name="a")
    new_study(sweep_dir, name="b")
    with pytest.raises(ConfigError, match=r"the studies a, b, and sweep\.json does not say"):
        n_trials(sweep_dir)

    facts(sweep_dir, study_name="b")
    assert n_trials(sweep_dir) == 0

    facts(sweep_dir, study_name="c")
    with pytest.raises(ConfigError, match="the studies a, b, not 'c'"):
        n_trials(sweep_dir)
