"""What several files declare agrees, and the Makefile keeps its promises, seen with a Python that only takes notes."""

import configparser
import fcntl
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
INSTALL_FILES = ("Makefile", "requirements.lock", "setup.cfg", "pyproject.toml")

# Stands in for python3. `-m venv DIR` leaves a copy of itself there; each other call is a line in $CALLS.
RECORDING_PYTHON = """#!/bin/sh
case "$*" in
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-c import ensurepip, venv") exit "${NO_ENSUREPIP:-0}" ;;
"-m pip --version") ;;
"-m compileall "*) ;;
"-c import fcntl"*) exec "$REAL_PYTHON" "$@" ;;
"-c"*) ;;
*) echo "$*" >>"$CALLS"; case "$*" in *"${FAIL_ON:-nothing}"*) exit 1 ;; esac ;;
esac
"""


def read_setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def read_requirements(text: str) -> list[Requirement]:
    return [Requirement(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def read_lock() -> dict[str, Requirement]:
    lines = read_requirements((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    return {canonicalize_name(line.name): line for line in lines}


def pinned_version(requirement: Requirement) -> str:
    (specifier,) = requirement.specifier
    return specifier.version


def is_within(requirement: Requirement, pin: Requirement) -> bool:
    return requirement.specifier.contains(pinned_version(pin), prereleases=True)


def declared_requirements() -> list[Requirement]:
    config = read_setup_cfg()
    dev = config["options.extras_require"]["dev"]
    return read_requirements(config["options"]["install_requires"] + "\n" + dev)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with blanks in its name that holds what `make install` reads, and the recording interpreter."""
    folder = tmp_path / "a check out"
    folder.mkdir()
    for name in INSTALL_FILES:
        shutil.copy(ROOT / name, folder)
    python = folder / "recording python"
    python.write_text(RECORDING_PYTHON, encoding="utf-8")
    python.chmod(0o755)
    return folder


def start_make(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VENV", "ARGS")}
    clean |= {"CALLS": str(folder / "calls"), "REAL_PYTHON": sys.executable, **environment}
    command = ["make", "PYTHON=./recording python", *arguments]
    return subprocess.Popen(command, cwd=folder, env=clean, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_make(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    with start_make(folder, *arguments, **environment) as make:
        stdout, stderr = make.communicate(timeout=60)
    return subprocess.CompletedProcess(make.args, make.returncode, stdout, stderr)


def read_calls(folder: Path) -> list[str]:
    """The calls so far, as pip's own arguments; starts anew."""
    calls = folder / "calls"
    if not calls.exists():
        return []
    lines = calls.read_text(encoding="utf-8").splitlines()
    calls.unlink()
    return [line.replace("-m pip install -qq --disable-pip-version-check --no-compile ", "") for line in lines]


def test_every_declared_package_is_locked_within_its_range() -> None:
    lock = read_lock()
    declared = declared_requirements()

    assert len(declared) > 30
    for requirement in declared:
        pin = lock.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement.name} is not in requirements.lock; `make lock` adds it"
        assert is_within(requirement, pin), f"{requirement} is locked as {pin}"


def test_the_lock_holds_all_that_locked_packages_need() -> None:
    lock = read_lock()
    installed = {canonicalize_name(d.name): d for d in importlib.metadata.distributions()}
    versions = {name: distribution.version.split("+")[0] for name, distribution in installed.items()}
    known = [name for name, pin in lock.items() if versions.get(name) == pinned_version(pin)]
    if len(known) < len(lock) / 2:
        pytest.skip("this environment was not installed from requirements.lock")

    for name in known:
        # torch's build decides which of CUDA's libraries it needs: the lock serves every build.
        for requirement in map(Requirement, installed[name].requires or [] if name != "torch" else []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed = lock.get(canonicalize_name(requirement.name))
                assert needed is not None, f"{name} needs {requirement}, which is not locked"
                assert is_within(requirement, needed), f"{name} needs {requirement}, locked is {needed}"


def test_the_lock_pins_each_package_once_and_names_no_place() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    lines = read_requirements(text)

    assert len(lines) == len(read_lock())
    for line in lines:
        assert re.fullmatch(r"==[^+*,]+", str(line.specifier)), f"{line} is not one public version"
    assert "://" not in text
    assert " @ " not in text


def test_conda_takes_the_same_pins_and_pythons() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    config = read_setup_cfg()
    from_pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    python = next(Requirement(entry) for entry in environment["dependencies"] if str(entry).startswith("python"))
    classified = re.findall(r"Python :: (3\.\d+)", config["metadata"]["classifiers"])

    assert from_pip == ["-r requirements.lock", "-e ."]
    assert environment["name"] == config["metadata"]["name"]
    assert classified == ["3.11", "3.12", "3.13", "3.14"]
    assert all(python.specifier.contains(f"{version}.1") for version in classified)
    assert config["options"]["python_requires"] == ">=3.11"


def test_ci_tries_every_python_that_is_classified() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["check"]
    classified = re.findall(r"Python :: (3\.\d+)", read_setup_cfg()["metadata"]["classifiers"])

    assert job["strategy"]["matrix"]["python"] == classified
    assert [step["run"] for step in job["steps"] if "run" in step] == [
        "make install",
        "make lint",
        "make chaos ARGS=--subset",
        "make test",
    ]


def test_the_licence_is_the_one_that_is_declared() -> None:
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")

    assert read_setup_cfg()["metadata"]["license"] == "Apache-2.0"
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_help_lists_every_target(checkout: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, flags=re.MULTILINE))

    shown = run_make(checkout).stdout

    assert {"train", "test", "lint", "lock"} <= targets
    assert targets == {line.split()[0] for line in shown.splitlines() if "=" not in line.split()[0]}


def test_installs_torch_before_the_rest(checkout: Path) -> None:
    result = run_make(checkout, "install")

    assert result.returncode == 0, result.stderr
    assert read_calls(checkout) == [
        f"torch=={pinned_version(read_lock()['torch'])}",
        "-r requirements.lock",
        "--no-deps --no-build-isolation -e .",
    ]


def test_train_installs_once_and_hands_on_its_arguments(checkout: Path) -> None:
    run_make(checkout, "install")
    read_calls(checkout)

    result = run_make(checkout, "train", "ARGS=+experiment=x 'a=[1, 2]'")

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert read_calls(checkout) == ["train.py +experiment=x a=[1, 2]"]


@pytest.mark.parametrize("name", ["requirements.lock", "setup.cfg", "pyproject.toml"])
def test_installs_again_when_a_declaration_changed(checkout: Path, name: str) -> None:
    run_make(checkout, "install")
    read_calls(checkout)
    stamp_time = (checkout / ".venv/.installed").stat().st_mtime
    os.utime(checkout / name, (stamp_time + 5, stamp_time + 5))

    run_make(checkout, "install")

    assert "-r requirements.lock" in read_calls(checkout)


def test_makes_the_environment_anew_after_an_interrupted_installation(checkout: Path) -> None:
    interrupted = run_make(checkout, "install", FAIL_ON="-r requirements.lock")
    leftover = checkout / ".venv/half-written"
    leftover.touch()

    healed = run_make(checkout, "install")

    assert interrupted.returncode != 0
    assert healed.returncode == 0, healed.stderr
    assert not leftover.exists()
    assert (checkout / ".venv-installing").read_text(encoding="utf-8") == ""


def test_waits_for_another_installation_and_does_not_repeat_it(checkout: Path) -> None:
    """Two makes in a fresh clone removed each other's half-made environment."""
    with (checkout / ".venv-installing").open("w") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        second = start_make(checkout, "install")
        assert second.stdout is not None
        first_line = second.stdout.readline()
        (checkout / ".venv").mkdir()
        (checkout / ".venv/.installed").touch()
    rest, errors = second.communicate(timeout=30)

    assert first_line == "Waiting for another installation into .venv\n"
    assert (second.returncode, rest, errors) == (0, "", "")
    assert read_calls(checkout) == []


def test_makes_the_environment_anew_when_its_python_is_gone(checkout: Path) -> None:
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/python").symlink_to("/nowhere/python3")

    assert run_make(checkout, "install").returncode == 0
    assert (checkout / ".venv/.installed").exists()


def test_uses_a_ready_environment_as_it_is(checkout: Path) -> None:
    ready = checkout / "ready one"
    (ready / "bin").mkdir(parents=True)
    shutil.copy(checkout / "recording python", ready / "bin/python")

    result = run_make(checkout, "test", f"VENV={ready}")

    assert result.returncode == 0, result.stderr
    assert read_calls(checkout) == ["-m pytest"]
    assert not (checkout / ".venv").exists()


def test_says_what_to_install_when_python_cannot_make_environments(checkout: Path) -> None:
    result = run_make(checkout, "train", NO_ENSUREPIP="1")

    message, from_make = result.stderr.splitlines()
    assert message.startswith("PYTHON: './recording python' cannot make environments; on Debian")
    assert from_make.startswith("make: ***")
    assert not (checkout / ".venv").exists()


def test_says_how_to_name_another_python_when_there_is_none(checkout: Path) -> None:
    result = run_make(checkout, "train", "PYTHON=python-of-nobody")

    assert result.returncode != 0
    assert "PYTHON: 'python-of-nobody' was not found; install Python 3.11" in result.stderr


@pytest.mark.slow
def test_the_wheel_holds_all_of_the_package_and_the_configuration_but_what_is_local(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    for name in ("project", "conf"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "local"))
    expected = {path.relative_to(source).as_posix() for path in (source / "project").rglob("*") if path.is_file()}
    expected |= {f"project/{path.relative_to(source).as_posix()}" for path in (source / "conf").rglob("*.yaml")}
    (source / "conf/local").mkdir()
    (source / "conf/local/mine.yaml").touch()

    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "."], cwd=source, check=True, timeout=110)

    (wheel,) = tmp_path.glob("project-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = archive.read(next(n for n in archive.namelist() if n.endswith("entry_points.txt"))).decode()
    assert names == expected | {"project/conf/__init__.py"}
    assert "project-train = project.train:main" in metadata
