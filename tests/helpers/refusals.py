"""Runs that cannot begin."""

from pathlib import Path
from typing import Any

import pytest

from project.common.errors import ConfigError, ProjectError
from project.training.launch import run
from tests.helpers.training import compose

QUICK = ("logger=none", "trainer.max_epochs=1", "resume=never")


def refused(config: dict[str, Any], kind: type[ProjectError] = ConfigError) -> list[str]:
    """The lines of the refusal; nothing may be left of the run, not even the folder of runs."""
    runs_dir = Path(config["paths"]["runs_dir"])
    existed = runs_dir.exists()
    with pytest.raises(kind) as caught:
        run(config)
    assert caught.type is kind
    assert runs_dir.exists() == existed
    return str(caught.value).splitlines()


def compose_trivial(folder: Path, *overrides: str) -> dict[str, Any]:
    return compose(
        "+experiment=trivial", "managers/wandb=disabled", "logger=none", f"paths.runs_dir={folder}/runs", *overrides
    )
