"""What a command does before its modules are imported, and where it stands without a home or a folder."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from project.common import early
from tests.helpers.training import ROOT


@pytest.mark.parametrize("entry", ["train.py", "eval.py", "predict.py"])
def test_an_interrupt_during_the_imports_ends_a_command_without_a_traceback(entry: str) -> None:
    """A Ctrl-C in the first quarter of a second printed thirty lines of imports."""
    code = (
        "import os, runpy, signal, sys\n"
        "class Importing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'project.{entry[:-3]}': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Importing())\n"
        f"runpy.run_path({str(ROOT / entry)!r}, run_name='__main__')\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_handler_of_somebody_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        early.leave_quietly_on_interrupt()

        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("entry", ["train.py", "eval.py", "predict.py"])
def test_a_current_directory_that_was_removed_is_told_in_a_sentence(tmp_path: Path, entry: str) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = f"import os, sys; os.rmdir({str(gone)!r}); os.execv(sys.executable, [sys.executable, {str(ROOT / entry)!r}])"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=gone, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 2
    assert done.stderr == "the current directory was removed; change into one that is there\n"


def test_a_home_is_found_where_the_environment_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B's service then wrote its own log lines to the terminal."""
    monkeypatch.delenv("HOME")

    early.ensure_home()

    assert Path(os.environ["HOME"]).is_absolute()
