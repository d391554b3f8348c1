"""Runs real commands and sees every process that comes from them, also those whose parents are gone."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.helpers.waiting import until

PR_SET_CHILD_SUBREAPER = 36
ROOT = Path(__file__).resolve().parents[2]


def adopt_orphans() -> None:
    """Lets orphans below this process become its children instead of init's, so that none escapes (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> set[psutil.Process]:
    """Every living process below this one; zombies do not live."""
    return {process for process in psutil.Process().children(recursive=True) if is_alive(process)}


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs: neither gone nor a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_all(processes: set[psutil.Process]) -> None:
    """SIGKILL to each, and waits until they are gone."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(list(processes), timeout=3)


class Tree:
    """A running command and all that comes from it.

    Args:
        popen: The command's process.
        output: File with what it wrote to stdout and stderr.
        before: Processes that lived before it.
    """

    def __init__(self, popen: subprocess.Popen[bytes], output: Path, before: set[psutil.Process]) -> None:
        self.popen, self._output, self._before = popen, output, before

    @property
    def pid(self) -> int:
        """Pid of the command; it leads its own session and process group."""
        return self.popen.pid

    @property
    def text(self) -> str:
        """What was written so far."""
        return self._output.read_text(errors="replace")

    def processes(self) -> set[psutil.Process]:
        """The command's process and all below it that live, orphans too."""
        return descendants() - self._before

    def titled(self, word: str) -> set[psutil.Process]:
        """Those with `word` in their title."""
        found = set()
        for process in self.processes():
            try:
                if word in " ".join(process.cmdline()):
                    found.add(process)
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        return found

    def signal(self, number: int) -> None:
        """To the command alone."""
        os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """To its process group, as a terminal does."""
        os.killpg(self.pid, number)

    def wait(self, limit_s: float = 60.0) -> int:
        """Its exit code, negative for a signal."""
        try:
            return self.popen.wait(limit_s)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"still running after {limit_s:g} s:\n{self.text[-3000:]}") from error

    def wait_until_written(self, words: str, limit_s: float = 60.0) -> None:
        """Returns when `words` stand in the output; fails at once when the command ends without them."""
        until(lambda: words in self.text or self.popen.poll() is not None, limit_s, what=f"{words!r} in {self.text}")
        assert words in self.text, self.text

    def assert_nothing_left(self, limit_s: float = 5.0) -> None:
        """Fails when anything that came from the command still lives after `limit_s`."""
        until(lambda: not self.processes(), limit_s, what=f"end of {self.processes()}\n{self.text[-3000:]}")


@contextmanager
def _sigint_not_ignored() -> Iterator[None]:
    """A shell that starts a suite in the background ignores SIGINT in it, and what is ignored is inherited."""
    previous = signal.getsignal(signal.SIGINT)
    if previous is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def running(
    command: Sequence[str], *, output: Path, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[Tree]:
    """Starts `command` in its own session with SIGINT reset to default; whatever is left at the end is killed.

    Args:
        command: Arguments; `python` stands for this interpreter.
        output: File for stdout and stderr.
        environ: Additions to this process's environment.
        cwd: Where it runs; the repository's root by default.
    """
    adopt_orphans()
    before = descendants()
    arguments = [sys.executable, *command[1:]] if command[0] == "python" else list(command)
    with open(output, "wb") as file, _sigint_not_ignored():
        popen = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | dict(environ or {}),
            cwd=cwd or ROOT,
        )
    tree = Tree(popen, output, before)
    try:
        yield tree
    finally:
        kill_all(tree.processes())
        popen.wait(5)
