"""Copies the files of the template and gives them the chosen names. Jinja has not seen them."""

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
from template.generate import generate  # noqa: E402

for line in generate(template_dir(), Path.cwd(), ANSWERS):
    print(line)
