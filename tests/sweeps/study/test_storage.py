import os
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import optuna
import pytest
from sqlalchemy import create_engine

from project.common.errors import ConfigError
from project.sweeps.study import storage
from project.sweeps.study.patience import StorageLostError
from project.sweeps.study.storage import locate
from tests.helpers.postgres import Server
from tests.helpers.stores import END, claimed, open_store, opened

KEY = r"^hydra\.sweeper\.storage: "


@pytest.mark.case("63")
@pytest.mark.parametrize("name", ["sweep", "a b", "50%", "a%20b", "#1", "what?x=1", "what?", "{x}", "é"])
def test_the_default_is_a_file_in_the_sweeps_folder(tmp_path: Path, name: str) -> None:
    with opened(tmp_path / name) as store:
        assert (tmp_path / name / "study.db").is_file()
        again = optuna.load_study(study_name="tested", storage=store.url_masked)
        assert len(again.trials) == 0
    assert os.listdir(tmp_path) == [name]


@pytest.mark.case("63")
@pytest.mark.parametrize(
    ("address", "file"),
    [
        ("sqlite:///new/a b.db", "new/a b.db"),
        ("sqlite:///100%.db", "100%.db"),
        ("sqlite:///a%20b.db", "a b.db"),
        ("sqlite:///what?.db", "what?.db"),
        ("sqlite:///kept.db?timeout=3", "kept.db"),
        ("sqlite+pysqlite:///#1.db", "#1.db"),
        ("journal:///new/a b%?.log", "new/a b%?.log"),
        ("deeper/kept.journal", "deeper/kept.journal"),
    ],
)
def test_a_relative_path_begins_where_the_command_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, file: str
) -> None:
    """It depended on the folder that Hydra had changed to, and a missing folder was an error."""
    monkeypatch.chdir(tmp_path)
    place = locate(address, sweep_dir=tmp_path / "sweep")
    with opened(tmp_path / "sweep", address) as store:
        claimed(store)

    assert place.file == tmp_path / file
    assert place.file.is_file()
    assert str(tmp_path) in place.shown


def test_an_absolute_path_and_the_home_folder_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert locate(f"sqlite:///{tmp_path}/x.db", sweep_dir=tmp_path).file == tmp_path / "x.db"
    assert locate("sqlite:///~/x.db", sweep_dir=tmp_path).file == tmp_path / "x.db"


def test_the_address_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(storage.VARIABLE, f"sqlite:///{tmp_path}/x.db")

    assert storage.VARIABLE == "PROJECT_STORAGE"
    assert locate(None, sweep_dir=tmp_path).file == tmp_path / "x.db"
    assert locate("sqlite:///y.db", sweep_dir=tmp_path).file != tmp_path / "x.db"


@pytest.mark.parametrize("address", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_study_in_memory_works_and_leaves_no_file(tmp_path: Path, address: str) -> None:
    with opened(tmp_path / "sweep", address) as store:
        store.complete(claimed(store), 1.0, END)

        assert (store.progress().complete, store.url_masked) == (1, "in memory")
    assert os.listdir(tmp_path / "sweep") == [".study_id"]


def test_a_storage_that_was_made_by_others_is_taken(tmp_path: Path) -> None:
    made = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/x.db")
    with opened(tmp_path / "sweep", made) as store:
        claimed(store)

        assert store.url_masked == f"sqlite:///{tmp_path}/x.db"
        assert (tmp_path / "x.db.section").exists()


SECRETS = [
    ("postgresql://me:hunter22@no.such.host/db", "hunter22"),
    ("postgresql://me:hun%2Fter%4022@no.such.host/db", "hun"),
    ("postgresql://no.such.host/db?user=me&password=hunter22", "hunter22"),
    ("postgresql://me@no.such.host/db?sslpassword=hunter22", "hunter22"),
    ("postgresql://me:{hunter22}@no.such.host/db", "hunter22"),
    ("postgresql://me:hunter22@no.such.host:port/db", "hunter22"),
    ("nothing://me:hunter22@no.such.host/db", "hunter22"),
]


@pytest.mark.parametrize(("address", "secret"), SECRETS)
def test_no_error_shows_a_password(tmp_path: Path, address: str, secret: str) -> None:
    with pytest.raises(ConfigError, match=KEY) as raised:
        open_store(tmp_path / "sweep", address)

    assert secret not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


@pytest.mark.parametrize(("address", "secret"), SECRETS[:5])
def test_nothing_that_is_shown_has_a_password(tmp_path: Path, address: str, secret: str) -> None:
    place = locate(address, sweep_dir=tmp_path)

    assert secret not in place.shown
    assert secret not in repr(place)
    assert secret not in place.mask(f"no entry at {address}")


def test_a_server_that_vanishes_is_noticed_as_soon_as_the_address_says(shared_postgres: Server, tmp_path: Path) -> None:
    """The system's own limit is two hours."""
    place = locate(f"{shared_postgres.url()}&keepalives_idle=7", sweep_dir=tmp_path)
    engine = create_engine(place.url, **place.engine_options())
    with engine.connect() as connection:
        found = connection.connection.dbapi_connection.info.get_parameters()
    engine.dispose()

    names = ("connect_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout")
    assert [int(found[name]) for name in names] == [10, 7, 10, 3, 60_000]


def test_a_password_is_masked_wherever_it_stands(tmp_path: Path) -> None:
    place = locate("postgresql://me:hun%2Fter@no.such.host/db", sweep_dir=tmp_path)

    assert place.mask("tried hun/ter, and hun%2Fter") == "tried ***, and ***"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nothing://host/db", "is no address of a storage; use sqlite:///study.db"),
        ("kept.db", "'kept.db' is no address of a storage"),
        ("sqlite://kept.db", "a file takes three slashes: sqlite:///kept.db"),
        ("journal://", "the journal's file is missing"),
        ("postgresql://me@localhost:1/db", r"cannot be opened \(.*refused.*\); start the server"),
        ("mysql+pymysql://me@localhost/db", "needs the package 'pymysql'; install it"),
        (7, "int is no storage; use"),
    ],
)
def test_an_address_that_will_not_do_is_one_clear_line(tmp_path: Path, address: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=KEY + ".*" + words) as raised:
        open_store(tmp_path / "sweep", address)

    assert "\n" not in str(raised.value)


def test_a_missing_driver_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(ConfigError, match=r"needs the package psycopg; pip install 'project\[postgres\]'"):
        locate("postgresql://host/db", sweep_dir=tmp_path)


@pytest.mark.parametrize("scheme", ["sqlite", "journal"])
def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=KEY + r".*file cannot be written to \(File exists\)"):
        open_store(tmp_path / "sweep", f"{scheme}:///{tmp_path}/file/kept")
    with pytest.raises(ConfigError, match=KEY + r".*/proc/sweep cannot be written to"):
        open_store(Path("/proc/sweep"))


@pytest.mark.parametrize("text", ["no database, no journal\n" * 50, '{"one": "line"}', '{"a": 1}\n{"b": 2}'])
@pytest.mark.parametrize("scheme", ["sqlite", "journal"])
def test_a_file_of_another_kind_is_refused_and_stays(tmp_path: Path, scheme: str, text: str) -> None:
    file = tmp_path / "notes.txt"
    file.write_text(text)

    with pytest.raises(ConfigError, match=KEY + r".*notes.txt cannot be opened \(.+\); give a file that Optuna"):
        open_store(tmp_path / "sweep", f"{scheme}:///{file}")
    assert file.read_text() == text


def test_a_journal_whose_last_line_was_cut_off_goes_on(tmp_path: Path) -> None:
    """A kill can cut a write in two; the next line was then glued to the half one, and the study was lost."""
    file = tmp_path / "kept.journal"
    with opened(tmp_path / "sweep", str(file)) as store:
        claimed(store)
    with file.open("ab") as journal:
        journal.write(b'{"op_code":8,"worker_id":"' + b"x" * 5000)
    for n_trials in (2, 3):
        with opened(tmp_path / "sweep", str(file)) as store:
            store.complete(claimed(store), 1.0, END)

            assert len(store.study.trials) == n_trials
    assert b"xxx" not in file.read_bytes()


def test_a_journal_that_cannot_be_written_is_an_outage(tmp_path: Path) -> None:
    file = tmp_path / "kept.journal"
    with opened(tmp_path / "sweep", str(file), storage_timeout_s=0.5) as store:
        trial = claimed(store)
        file.rename(tmp_path / "away")
        file.mkdir()
        with pytest.raises(StorageLostError, match="Is a directory"):
            store.complete(trial, 1.0, END)
        file.rmdir()
        (tmp_path / "away").rename(file)
        store.complete(trial, 1.0, END)

        assert store.progress().complete == 1


def test_a_study_of_another_version_of_optuna_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path / "sweep").close()
    with sqlite3.connect(tmp_path / "sweep" / "study.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9.9.9'")
    connection.close()

    with pytest.raises(ConfigError, match=KEY + ".*no longer compatible"):
        open_store(tmp_path / "sweep")


def test_a_database_that_a_server_does_not_have_is_refused(shared_postgres: Server, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=KEY + r'.*database "missing" does not exist.*; start the server, or mend'):
        open_store(tmp_path / "sweep", shared_postgres.url(database="missing"))


def test_the_password_of_a_server_is_in_nothing_that_is_kept(
    shared_postgres: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG")
    address = shared_postgres.url(user="tester:hunter22")
    with opened(tmp_path / "sweep", address, study_name="secret") as store:
        trial = claimed(store)
        store.study._storage._backend.engine.dispose()
        store.put_back(trial, END)
        words = shared_postgres.sql("SELECT value_json FROM trial_user_attributes UNION SELECT study_name FROM studies")

        assert (
            store.url_masked
            == f"postgresql+psycopg://tester:***@/postgres?host={quote(str(shared_postgres.folder), safe='')}"
        )
        assert "hunter22" not in words + caplog.text + "".join(capfd.readouterr())
        assert "hunter22" not in repr(store.__dict__)
