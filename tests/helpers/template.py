"""Projects made from this repository by cookiecutter."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.helpers.packages import ROOT

TEXT_LIMIT_S = 120.0


def make_project(
    folder: Path, *answers: str, template: Path = ROOT, environ: Mapping[str, str] | None = None, start: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Runs cookiecutter in `start` without questions; its own files lie in `folder` too, the project in folder/made."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "cookiecutter.yaml"
    settings.write_text(json.dumps({name: str(folder / name) for name in ("replay_dir", "cookiecutters_dir")}))
    options = ["--no-input", "--config-file", str(settings), "--output-dir", str(folder / "made")]
    return subprocess.run(
        [sys.executable, "-m", "cookiecutter", *options, str(template), *answers],
        cwd=start,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | dict(environ or {}),
        capture_output=True,
        text=True,
        timeout=TEXT_LIMIT_S,
        check=False,
    )


def made(folder: Path) -> Path:
    """The one project that was made in `folder`."""
    (project,) = (folder / "made").iterdir()
    return project


def files(project: Path) -> set[str]:
    """The files of a project, as git would name them."""
    return {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
