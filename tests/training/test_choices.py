"""Every choice of the groups that training reads: it composes, and its targets take its keys."""

from pathlib import Path

import pytest

from project.common.config_check import check_heavy, check_light
from tests.helpers.training import ROOT, compose

GROUPS = (
    "trainer",
    "callbacks",
    "logger",
    "loader",
    "task",
    "debug",
    "managers/model",
    "managers/metrics",
    "managers/wandb",
)
FILES = [file for group in GROUPS for file in sorted((ROOT / "conf" / group).glob("*.yaml"))]


def test_all_files_are_looked_at() -> None:
    assert len(FILES) == 41


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_choice_composes_and_fits_its_targets(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # torch sets it when transformers is imported
    group = file.parent.relative_to(ROOT / "conf")

    config = compose(f"{group}={file.stem}")

    assert check_light(config) == []
    assert check_heavy(config) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_file_begins_with_what_it_is_and_the_command_that_uses_it(file: Path) -> None:
    lines = file.read_text().splitlines()
    first = lines[1] if lines[0].startswith("# @package") else lines[0]

    assert first.startswith("# ")
    assert "python train.py" in first
