"""Fingerprints of what is installed."""

from pathlib import Path

import pytest

from project.common.files import fingerprints


@pytest.fixture(autouse=True)
def _asked_anew() -> None:
    fingerprints.installed_versions.cache_clear()


def test_another_version_of_any_installed_package_changes_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "corpus-1.0.dist-info").mkdir()
    before = fingerprints.installed_versions()
    fingerprints.installed_versions.cache_clear()

    (tmp_path / "corpus-1.0.dist-info").rename(tmp_path / "corpus-1.1.dist-info")

    assert fingerprints.installed_versions() != before


def test_a_folder_on_the_path_that_is_not_there_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprints.installed_versions()
    fingerprints.installed_versions.cache_clear()

    monkeypatch.syspath_prepend("/nonexistent.zip")

    assert fingerprints.installed_versions() == before
