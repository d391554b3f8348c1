"""Names for what was made from what: equal inputs, settings, code and versions give an equal fingerprint."""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# A larger file is known by its size and time of change: every process would read it again otherwise.
HASHED_WHOLE_MB = 64


def fingerprint(*parts: Any) -> str:
    """Returns 16 hexadecimal digits for plain data; the order of a mapping's keys does not count."""
    text = json.dumps(parts, sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def of_files(paths: Iterable[Path]) -> list[list[Any]]:
    """Returns what tells these files' contents from others', for `fingerprint`."""
    return [[str(path), *_of_file(path)] for path in paths]


def _of_file(path: Path) -> Sequence[Any]:
    stat = path.stat()
    if stat.st_size > HASHED_WHOLE_MB * 2**20:
        return stat.st_size, stat.st_mtime_ns
    with path.open("rb") as file:
        return (hashlib.file_digest(file, "sha256").hexdigest(),)


def of_target(node: Mapping[str, Any] | None) -> list[Any] | None:
    """Returns what tells a configuration node and the code that it names from others, for `fingerprint`.

    All Python files beside the target's module count, because it may use them, and so do all installed versions: a
    source may read any package's data. Nothing is imported.
    """
    if node is None:
        return None
    source = _source_dir(str(node.get("_target_", "")))
    files = [] if source is None else of_files(sorted(source.glob("*.py")))
    return [dict(node), [digest for _, digest, *_ in files], installed_versions()]


def _source_dir(target: str) -> Path | None:
    """The folder of a target's module, or None for an installed package, which its version describes."""
    name = target.rpartition(".")[0]
    while name:
        module = sys.modules.get(name)
        spec = module.__spec__ if module is not None else _find(name)
        origin = getattr(module, "__file__", None) or (spec.origin if spec is not None else None)
        if origin is not None:
            folder = Path(origin).parent
            return None if {"site-packages", "dist-packages"} & set(folder.parts) else folder
        name = name.rpartition(".")[0]
    return None


def _find(name: str) -> Any:
    try:
        return find_spec(name)
    except (ImportError, ValueError):
        return None


def of_code(*modules: str) -> list[str]:
    """Returns what tells this project's own modules from other versions of them, for `fingerprint`."""
    return [str(_of_file(Path(str(sys.modules[name].__file__)))[0]) for name in modules]


def versions_of(*packages: str) -> dict[str, str]:
    """Returns the installed versions; `absent` for what is not installed."""
    return {package: _version(package) for package in packages}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


@cache
def installed_versions() -> str:
    """Returns one digest of Python's version and of all installed packages', by the names of their metadata folders.

    Every process asks: reading the metadata of some hundred packages would take longer than building all managers.
    """
    return fingerprint(sys.version, sorted({name for folder in sys.path for name in _metadata_names(folder)}))


def _metadata_names(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return []  # a zip file, or not there
