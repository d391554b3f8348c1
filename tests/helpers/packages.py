"""What the lock pins."""

from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def read_requirements(text: str) -> list[Requirement]:
    return [Requirement(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def read_lock() -> dict[str, Requirement]:
    lines = read_requirements((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    return {canonicalize_name(line.name): line for line in lines}


def pinned_version(requirement: Requirement) -> str:
    (specifier,) = requirement.specifier
    return specifier.version
