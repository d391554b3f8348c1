"""Folders of installed packages, which are found and never imported."""

from importlib.util import find_spec
from pathlib import Path


def package_dir(package: str, *, install: str | None = None) -> Path:
    """Returns the folder of a top-level package.

    Args:
        package: the name under which it would be imported.
        install: what pip is given; None for the same name.

    Raises:
        ValueError: it is not installed.
    """
    # The spec of a top-level package is found without importing it, which may take seconds or want settings.
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ValueError(f"package: '{package}' is not installed; pip install {install or package}")
    return Path(spec.origin).parent
