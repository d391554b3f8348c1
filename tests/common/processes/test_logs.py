"""Log lines: once in each file, tagged, whole, masked; nothing of ours stays in the logging module."""

import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from project.common.processes import logs
from project.common.processes.identity import Identity, Role
from tests.helpers.tree import ROOT

log = logging.getLogger("project.tests")


@pytest.fixture(autouse=True)
def _torn_down() -> Iterator[None]:
    yield
    logs.tear_down()


def rank(run_dir: Path, number: int = 0) -> Identity:
    return Identity(role=Role.RANK, rank=number, run_dir=str(run_dir))


def test_a_line_says_when_how_grave_who_and_which_pid(tmp_path: Path) -> None:
    logs.set_up_files(rank(tmp_path, 1))
    log.warning("words")

    (line,) = (tmp_path / "logs" / "run.log").read_text().splitlines()
    assert line.split()[2:] == ["WARNING", "rank1", str(os.getpid()), "project.tests:", "words"]
    assert (tmp_path / "logs" / f"rank1-{os.getpid()}.log").read_text() == line + "\n"


def test_warnings_and_third_parties_are_in_the_files_but_chatter_is_not(tmp_path: Path) -> None:
    logs.set_up_files(rank(tmp_path))
    warnings.warn("outdated", stacklevel=1)
    logging.getLogger("somebody").info("third party")
    logging.getLogger("httpx").info("chatter")

    text = (tmp_path / "logs" / "run.log").read_text()
    assert "outdated" in text
    assert "third party" in text
    assert "chatter" not in text


def test_the_terminal_shows_our_lines_once_and_not_those_for_files(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up_terminal()
    logs.set_up_terminal()
    log.info("ours")
    log.info("for files", extra={"terminal": False})
    logging.getLogger("somebody").error("theirs")

    assert capsys.readouterr().err == "ours\n"


def test_secrets_are_masked_in_files_and_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    logs.set_up_files(rank(tmp_path))
    logs.set_up_terminal()
    try:
        raise ValueError("no login with 0123456789abcdef at postgresql://me:hidden@host/db")
    except ValueError:
        log.exception("failed")

    for text in ((tmp_path / "logs" / "run.log").read_text(), capsys.readouterr().err):
        assert "no login with *** at postgresql://me:***@host/db" in text
        assert "0123456789abcdef" not in text


def test_lines_of_several_processes_never_mix(tmp_path: Path) -> None:
    code = (
        "import sys, logging; from project.common.processes import logs\n"
        "from project.common.processes.identity import Identity, Role\n"
        "logs.set_up_files(Identity(role=Role.RANK, rank=int(sys.argv[2]), run_dir=sys.argv[1]))\n"
        "for i in range(300): logging.getLogger('project').info('x' * 3000 + sys.argv[2] * 3000)\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(n)], cwd=ROOT) for n in range(3)]
    assert [process.wait(60) for process in started] == [0, 0, 0]

    lines = (tmp_path / "logs" / "run.log").read_text().splitlines()
    assert len(lines) == 900
    assert {line.split()[-1] for line in lines} == {"x" * 3000 + str(n) * 3000 for n in range(3)}


def test_what_cannot_be_encoded_costs_no_line(tmp_path: Path) -> None:
    logs.set_up_files(rank(tmp_path))
    log.info("half a pair: \ud800")

    assert r"half a pair: \ud800" in (tmp_path / "logs" / "run.log").read_text()


def test_tearing_down_restores_levels_and_may_be_repeated(tmp_path: Path) -> None:
    before = logging.getLogger().level, logging.getLogger("httpx").level
    logs.set_up_files(rank(tmp_path))
    logs.set_up_terminal()
    assert logging.getLogger("httpx").level == logging.WARNING
    logs.tear_down()
    logs.tear_down()

    assert (logging.getLogger().level, logging.getLogger("httpx").level) == before


def test_a_level_that_is_right_is_not_set_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting empties the caches of all loggers, of which libraries have thousands."""
    logs.set_up_files(rank(tmp_path))
    again: list[int] = []
    monkeypatch.setattr(logging.Logger, "setLevel", lambda self, level: again.append(level))
    logs.set_up_terminal()

    assert again == []


@pytest.mark.parametrize(
    ("role", "number", "shows"),
    [
        (Role.MAIN, None, True),
        (Role.TRIAL, None, True),
        (Role.RANK, 0, True),
        (Role.RANK, 1, False),
        (Role.WORKER, 0, False),
    ],
)
def test_who_may_write_to_the_terminal(role: Role, number: int | None, shows: bool) -> None:
    assert logs.shows_on_terminal(Identity(role=role, rank=number)) is shows
