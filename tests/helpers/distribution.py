"""The project as an installed distribution, without installing it."""

from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def describe_distribution(folder: Path) -> str:
    """Writes the metadata that an editable install writes; returns the PYTHONPATH on which it is found."""
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    name = settings["metadata"]["name"]
    info = folder / f"{name}-0.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0\n")
    groups = settings["options.entry_points"]
    text = "".join(f"[{group}]\n{entries.strip()}\n" for group, entries in groups.items())
    (info / "entry_points.txt").write_text(text)
    return f"{folder}:{ROOT}"
