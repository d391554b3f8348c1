"""No file that a run or a sweep writes has a secret in it, wherever the secret came from, also when the run fails."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from project import report
from project.common.files.layout import RunLayout
from tests.helpers import telling
from tests.helpers.runs import run_folder, tiny
from tests.helpers.sweeps import ended, sweep_dir, trivial_sweep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ENVIRONMENT = {
    "WANDB_API_KEY": "c0ffee" * 6 + "env1",
    "HF_TOKEN": "hf_canary_of_env_2",
    "AWS_SECRET_ACCESS_KEY": "canary-of-env-3",
    "DATABASE_URL": "postgresql://me:canary-of-env-4@host/db",
}
ENV_FILE = {"SERVICE_TOKEN": "canary-of-env-file"}
TYPED = (
    "+user.api_key=canary-typed-1",
    "+user.nested.deep.password=canary-typed-2",
    "+user.services={mail:{token:canary-typed-3,host:here}}",
    "+user.list=[{secret:'canary, typed 4'}]",
    "+user.database='postgresql://me:canary-typed-5@host/db'",
    "+user.copied=${oc.env:HF_TOKEN}",
    "+user.from_file=${oc.env:SERVICE_TOKEN}",
    "+user.elsewhere=${user.api_key}",
    "+user.within='Bearer ${user.nested.deep.password}'",
    "notes='looked up with ${oc.env:HF_TOKEN} and ${user.api_key}'",
    "tags=['${user.api_key}']",
)
SECRETS = (
    *(value.partition("://me:")[2].partition("@")[0] or value for value in ENVIRONMENT.values()),
    *ENV_FILE.values(),
    *("canary-typed-1", "canary-typed-2", "canary-typed-3", "canary, typed 4", "canary-typed-5"),
)


@pytest.fixture
def env_file(tmp_path: Path) -> None:
    """`.env` where the command is typed."""
    (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in ENV_FILE.items()))


def found_in(folder: Path) -> dict[str, list[str]]:
    """Which secrets stand in which files below a folder, whose names count too; `.env` is where one belongs."""
    return {
        str(path.relative_to(folder)): told
        for path, content in _contents(folder)
        if (told := [secret for secret in SECRETS if secret.encode() in content])
    }


def _contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file() and path != folder / ".env":
            yield path, path.read_bytes() + os.fsencode(path.name)


@pytest.mark.usefixtures("env_file")
def test_a_run_writes_none(tmp_path: Path) -> None:
    more = ("managers/wandb=offline", "logger=default", "print_config=true", "trainer.max_epochs=1")
    instead = {"managers/wandb=disabled", "logger=none"}
    command = [word for word in tiny(tmp_path, *TYPED, *more) if word not in instead]

    code, text = ended(command, tmp_path, environ=ENVIRONMENT | {"HOME": str(tmp_path)})

    assert code == 0, text
    layout = run_folder(tmp_path)
    assert report.main([str(layout.run_dir)]) == 0
    (stored,) = layout.wandb_dir.rglob("*.wandb")
    assert b"looked up with *** and ***" in stored.read_bytes(), "W&B keeps the notes, not the secrets"
    assert layout.checkpoint("last").is_file()
    assert "looked up with *** and ***" in _text_of(layout.report)
    assert "Bearer ***" in _text_of(layout.config)
    assert found_in(tmp_path) == {}


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.usefixtures("env_file")
def test_a_run_that_fails_with_a_secret_in_its_error_writes_none(tmp_path: Path) -> None:
    more = (f"+callbacks.teller._target_={telling.__name__}.Telling", "trainer.max_epochs=1")

    code, text = ended(tiny(tmp_path, *TYPED, *more), tmp_path, environ=ENVIRONMENT | {"HOME": str(tmp_path)})

    assert code == 1, text
    assert "the service refused ***" in text
    assert found_in(tmp_path) == {}


@pytest.mark.usefixtures("env_file")
def test_a_sweep_writes_none(tmp_path: Path) -> None:
    command = trivial_sweep(tmp_path, *TYPED, "seed=choice(1,2)", "hydra.sweeper.n_trials=2")

    code, text = ended(command, tmp_path, environ=ENVIRONMENT | {"HOME": str(tmp_path)})

    assert code == 0, text
    folder = sweep_dir(tmp_path)
    assert report.main([str(folder)]) == 0
    assert RunLayout(folder / "1").config.is_file()
    (storage,) = folder.glob("*.db")
    with sqlite3.connect(storage) as database:
        assert database.execute("SELECT count(*) FROM trials").fetchone() == (2,)
    database.close()
    assert found_in(tmp_path) == {}
