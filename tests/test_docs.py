"""What the documentation shows does what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.training import ROOT

LIMITS = {"README.md": 150, "ARCHITECTURE.md": 120}
PAGES = sorted(["README.md", "ARCHITECTURE.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md"))])
# Files that a run makes or that a user may make.
WRITTEN = ("config.yaml", "overrides.yaml", "optimization_results.yaml")
MADE = (
    "conf/local/",
    "conf/experiment/x.yaml",
    "conf/search/x.yaml",
    "conf/task/x.yaml",
    # What the page on a task of one's own makes.
    *(f"conf/{group}/numerals.yaml" for group in ("task", "experiment", "search")),
    "project/tasks/numerals",
    "tests/tasks/test_numerals.py",
    "runs/",
    "sweeps/",
    "logs/",
    ".locks/",
    "checkpoints/",
    "processes/",
    "conf/managers/<name>/",
)


def code_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_the_page_on_managers_runs_from_top_to_bottom(tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    blocks = code_blocks("docs/managers.md")
    definitions = [block for block in blocks if block.startswith("def ") or "config = {" in block]
    guarded = "".join(f"    {line}\n" for block in blocks if block not in definitions for line in block.splitlines())
    script.write_text("\n".join(definitions) + f'\nif __name__ == "__main__":\n{guarded}')

    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    folders = [line for line in done.stdout.splitlines() if "runs/demo/" in line]
    assert len(folders) == 2, "the parent's and the child's"
    assert folders[0] == folders[1], "the child shares the parent's run folder"


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`([\w./<>-]+/[\w./<>-]*|[\w-]+\.(?:py|md|yaml))`", text)) | set(
        re.findall(r"\]\(([\w./-]+)\)", text)
    )
    wanted = {
        name for name in named if not name.startswith(MADE) and not re.search(r"[<>=]|\.(json|jsonl|ckpt)$", name)
    }

    missing = sorted(name for name in wanted if not _exists(name))
    assert not missing


def _exists(name: str) -> bool:
    places = (ROOT, ROOT / "project", ROOT / "docs")
    return any((place / name).exists() for place in places) or name in WRITTEN


@pytest.mark.parametrize(("page", "limit"), LIMITS.items())
def test_the_first_pages_are_short(page: str, limit: int) -> None:
    assert len((ROOT / page).read_text().splitlines()) <= limit


@pytest.mark.parametrize("module", ["train", "eval", "predict", "export", "ps", "graph", "report", "config"])
def test_every_entry_runs_as_a_module(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"project.{module}", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
