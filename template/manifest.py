"""Writes template/manifest.txt, from which projects are made: `make manifest` after files were added or removed."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MANIFEST = ROOT / "template" / "manifest.txt"


def tracked() -> list[str]:
    """Returns the files that git knows and that are there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return sorted(name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


if __name__ == "__main__":
    MANIFEST.write_text("".join(f"{name}\n" for name in tracked()), encoding="utf-8")
