"""Projects as their users install them: a wheel, unpacked by pip into a folder that PYTHONPATH names."""

import shutil
import subprocess
import sys
from pathlib import Path

_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
_SOURCES = ("setup.cfg", "pyproject.toml", "LICENSE", "README.md")


def build_wheel(source: Path, package: str, folder: Path) -> Path:
    """Returns the wheel of a project, built from a copy of it, so that builds leave nothing in `source`."""
    copy = folder / "source"
    copy.mkdir(parents=True)
    for name in _SOURCES:
        shutil.copy(source / name, copy)
    for name in (package, "conf"):
        shutil.copytree(source / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "local"))
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "wheel")]
    subprocess.run([*_PIP, "wheel", *options, "."], cwd=copy, check=True, timeout=110)
    (wheel,) = (folder / "wheel").glob("*.whl")
    return wheel


def install(wheel: Path, site: Path) -> None:
    """Unpacks a wheel into `site`; its commands lie in site/bin. What it needs is in this environment."""
    options = ["--no-deps", "--no-index", "--target", str(site), "--upgrade"]
    subprocess.run([*_PIP, "install", *options, str(wheel)], check=True, timeout=110)
