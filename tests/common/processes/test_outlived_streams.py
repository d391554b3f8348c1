"""Output that nobody reads any more is lost, and nothing else changes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.training import ROOT

WRITER = """
from project.common.processes.outlived_streams import outlive_readers
import os, sys
outlive_readers()
print("first", flush=True)
sys.stdin.read()  # until the reader is gone
for _ in range(3):
    print("lost", flush=True)
    print("lost", file=sys.stderr)
os.write(1, b"lost too")  # as a child or native code does
sys.stdout.write("x" * 100_000)
"""


@pytest.mark.parametrize("options", [[], ["-u"]])
def test_a_process_goes_on_when_its_readers_are_gone(options: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, *options, "-c", WRITER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    first = process.stdout.readline()
    process.stdout.close()
    process.stderr.close()
    process.stdin.close()

    assert process.wait(30) == 0
    assert first == b"first\n"


def test_what_is_read_is_written_as_ever() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WRITER], input=b"", capture_output=True, cwd=ROOT, timeout=30, check=True
    )

    assert ended.stdout.startswith(b"first\nlost\nlost\nlost\nlost too")
    assert ended.stdout.endswith(b"x" * 100_000)
    assert ended.stderr == b"lost\n" * 3


COMMANDS = ("train.py --help", "train.py --cfg job", "eval.py --help", "-m project.ps --help", "-m project.graph")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_only_shows_ends_quietly_without_a_reader(tmp_path: Path, command: str) -> None:
    """Hydra's help and the tables ended with a BrokenPipeError's traceback, and exit code 1."""
    line = f"set -o pipefail; '{sys.executable}' {command} 2> '{tmp_path}/errors' | true"

    ended = subprocess.run(["bash", "-c", line], cwd=ROOT, timeout=60, check=False)

    assert (ended.returncode, (tmp_path / "errors").read_text()) == (0, "")
