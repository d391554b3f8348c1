"""Makes two projects, with the defaults and with odd answers, and does in each what its owner will do first.

Of the fast tests those run that names and choices can break; with --whole, the whole suite of each project.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ODD = (
    'project_name=It\'s a "new" idea, 2',
    "repo_name=new.idea-2",
    "package_name=zz_a_long_name_for_an_idea",
    "author=Zoë O'Neil <zoe@example.org>",
    "licence=MIT",
    "python_version=3.11",
    "wandb_entity=team",
    "wandb_project=ideas",
    "task=language_model",
    "extras=lora",
)
QUICK = "trainer.max_steps=3 managers/wandb=disabled logger=csv"
TESTS = (
    "tests/test_conf.py tests/test_packaging.py tests/test_make.py tests/test_docs.py tests/test_graph.py tests/tasks "
    "tests/common/test_whitelist.py tests/common/managers/test_public_interface.py "
    "tests/common/processes/test_process_server.py"
)
VENV = f"VENV={sys.prefix}"
OF_THIS_MAKE = ("MAKEFLAGS", "MAKELEVEL", "ARGS", "EXTRAS", "PARTS")


def main() -> None:
    """Exits with 1 when a step failed, after all were tried."""
    tests = ("test", VENV) if "--whole" in sys.argv[1:] else ("test-fast", VENV, f"ARGS=-q {TESTS}")
    steps = (("lint", VENV), tests, ("train", VENV, f"ARGS={QUICK}"))
    failed = []
    with tempfile.TemporaryDirectory(prefix="template check ") as scratch:
        for name, answers in {"defaults": (), "odd answers": ODD}.items():
            folder = generate(Path(scratch) / name, answers)
            failed += [f"{name}: make {step[0]}" for step in steps if not succeeds(name, step, folder)]
    sys.exit("\n".join(["template: failed", *failed]) if failed else 0)


def generate(parent: Path, answers: tuple[str, ...]) -> Path:
    """Returns the folder of the new project."""
    parent.mkdir()
    command = [sys.executable, "-m", "cookiecutter", "--no-input", "--output-dir", str(parent), str(ROOT), *answers]
    subprocess.run(command, check=True, timeout=300)
    (folder,) = parent.iterdir()
    return folder


def succeeds(name: str, step: tuple[str, ...], folder: Path) -> bool:
    """Runs one target of the project's Makefile."""
    begun = time.monotonic()
    clean = {key: value for key, value in os.environ.items() if key not in OF_THIS_MAKE}
    code = subprocess.run(["make", *step], cwd=folder, env=clean, timeout=7200, check=False).returncode
    print(f"template: {name}: make {step[0]} ended with {code} after {time.monotonic() - begun:.0f} s", flush=True)
    return code == 0


if __name__ == "__main__":
    main()
