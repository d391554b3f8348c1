"""Refuses answers that would not give a working project, before there is a file of it."""

import json
import os
import sys
from pathlib import Path

ANSWERS = json.loads({{cookiecutter | tojson | tojson}})  # noqa: F821


def template_dir() -> Path:
    """The template's folder, which may have been given relative to where cookiecutter was started."""
    given = Path(ANSWERS["_repo_dir"])
    started_in = (f"/proc/{os.getppid()}/cwd", os.environ.get("PWD", "."), ANSWERS["_output_dir"])
    places = [given, *(Path(place) for place in started_in), *(Path(place) / given for place in started_in)]
    return next(place.resolve() for place in places if (place / "template" / "manifest.txt").is_file())


sys.dont_write_bytecode = True
sys.path.insert(0, str(template_dir()))
from template.answers import problems  # noqa: E402

found = problems(ANSWERS)
if any(Path.cwd().iterdir()):
    found.append(f"{Path.cwd()}: holds something; choose another repo_name or move it away")
if found:
    sys.exit("\n".join(found))
