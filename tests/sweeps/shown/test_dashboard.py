"""The entry that serves optuna-dashboard, with a stand-in for that optional package."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from optuna.storages import BaseStorage

from project.sweeps.shown import dashboard
from tests.helpers.studies import new_study


class Server:
    """Takes the place of `optuna_dashboard.run_server`."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.calls: list[tuple[list[str], dict[str, Any]]] = []
        self.error = error

    def __call__(self, storage: BaseStorage, **options: Any) -> None:
        self.calls.append(([study.study_name for study in storage.get_all_studies()], options))
        if self.error:
            raise self.error


def install(monkeypatch: pytest.MonkeyPatch, server: Server) -> Server:
    package = ModuleType("optuna_dashboard")
    package.run_server = server  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "optuna_dashboard", package)
    return server


def test_serves_the_sweeps_storage_to_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new_study(tmp_path)
    server = install(monkeypatch, Server(KeyboardInterrupt()))

    assert dashboard.main([str(tmp_path), "--port", "8123"]) == 0

    assert server.calls == [(["s"], {"host": "127.0.0.1", "port": 8123})]
    assert f"dashboard of sqlite:///{tmp_path}/study.db: http://127.0.0.1:8123/" in capsys.readouterr().err


def test_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "optuna_dashboard", None)
    new_study(tmp_path)

    assert dashboard.main([str(tmp_path)]) == 2
    assert "optuna-dashboard is not installed; `make extras EXTRAS=dashboard`" in capsys.readouterr().err
    assert dashboard.main([str(tmp_path / "nowhere")]) == 2
    assert "nowhere: no such folder" in capsys.readouterr().err


def test_a_taken_port_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new_study(tmp_path)
    install(monkeypatch, Server(OSError(98, "Address already in use")))

    assert dashboard.main([str(tmp_path)]) == 1
    assert "port 8080: Address already in use; give another: --port 8081" in capsys.readouterr().err
