"""The Makefile: what it installs, when, and what it says when it cannot, seen with a Python that only takes notes."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.packages import ROOT, pinned_version, read_lock

INSTALL_FILES = ("Makefile", "requirements.lock", "setup.cfg", "pyproject.toml")

# Stands in for python3. `-m venv DIR` leaves a copy of itself there; each other call is a line in $CALLS.
RECORDING_PYTHON = """#!/bin/sh
case "$*" in
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-c import ensurepip, venv") exit "${NO_ENSUREPIP:-0}" ;;
"-m pip --version") ;;
"-m compileall "*) ;;
"-c import optuna_dashboard") exit "${NO_DASHBOARD:-0}" ;;
"-c import fcntl"*) exec "$REAL_PYTHON" "$@" ;;
"-c"*) ;;
*) echo "$*" >>"$CALLS"; case "$*" in *"${FAIL_ON:-nothing}"*) exit 1 ;; esac ;;
esac
"""


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


OF_THE_SUITES_MAKE = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VENV", "ARGS", "PARTS")


def start_make(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if name not in OF_THE_SUITES_MAKE}
    clean |= {"CALLS": str(folder / "calls"), "REAL_PYTHON": sys.executable, **environment}
    command = ["make", "PYTHON=./recording python", "EXTRAS=", *arguments]
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


@pytest.mark.parametrize(("is_missing", "installs"), [("0", 0), ("1", 1)])
def test_the_dashboard_installs_its_package_once(checkout: Path, is_missing: str, installs: int) -> None:
    run_make(checkout, "install")
    read_calls(checkout)

    result = run_make(checkout, "dashboard", "SWEEP=sweeps/a b", "ARGS=--port 8081", NO_DASHBOARD=is_missing)

    assert result.returncode == 0, result.stderr
    assert read_calls(checkout) == [
        *["-c requirements.lock --no-build-isolation -e .[dashboard]"] * installs,
        "-m project.sweeps.shown.dashboard sweeps/a b --port 8081",
    ]


def test_the_audit_fails_for_what_it_cannot_look_up(checkout: Path) -> None:
    """Without a network pip-audit says of every package that it was skipped, and that this is no failure."""
    run_make(checkout, "install")
    read_calls(checkout)

    run_make(checkout, "audit", "ARGS=--ignore-vuln X")

    assert read_calls(checkout) == [
        "-m pip_audit --strict --disable-pip --no-deps -r requirements.lock --ignore-vuln X"
    ]


def test_the_dashboard_wants_a_sweep(checkout: Path) -> None:
    result = run_make(checkout, "dashboard")

    assert result.returncode != 0
    assert "SWEEP: nothing was given; make dashboard SWEEP=sweeps/x" in result.stderr


def test_says_what_to_install_when_python_cannot_make_environments(checkout: Path) -> None:
    result = run_make(checkout, "train", NO_ENSUREPIP="1")

    message, from_make = result.stderr.splitlines()
    assert message.startswith("PYTHON: './recording python' cannot make environments; on Debian")
    assert from_make.startswith("make: ***")
    assert not (checkout / ".venv").exists()


def test_says_how_to_name_another_python_when_there_is_none(checkout: Path) -> None:
    result = run_make(checkout, "train", "PYTHON=python-of-nobody")

    assert result.returncode != 0
    assert "PYTHON: 'python-of-nobody' was not found; install Python 3." in result.stderr
