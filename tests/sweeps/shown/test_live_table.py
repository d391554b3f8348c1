"""The live table on a terminal, in a pipe, and what it leaves behind."""

import logging
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

import pytest

from project.common.processes import logs
from project.sweeps.shown.live_lines import table_lines
from project.sweeps.shown.live_table import BestView, LiveTable, SlotView, SweepView, seconds_left
from tests.helpers.packages import ROOT
from tests.helpers.terminal import Terminal

log = logging.getLogger("project.sweeps.test")


def view(n_slots: int = 2, **more: object) -> SweepView:
    slots = [
        SlotView(
            number=10 + i,
            params_text=f"lr=0.{i} name=größe-漢字 path={'x' * 200}",
            state="training" if i % 2 else "building managers",
            step=i * 50,
            total_steps=400,
            value=0.5 + i / 10,
            seconds=60.0 * i,
        )
        for i in range(n_slots)
    ]
    best = BestView(number=3, values=(0.93,), params_text="lr=0.1")
    facts = {"study": "s", "n_trials": 20, "n_done": 4, "best": best, **more}
    return SweepView(slots=slots, **facts)  # type: ignore[arg-type]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    terminal = Terminal(100)
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((terminal.width, 30)))
    logs.set_up_terminal()
    yield terminal
    logs.tear_down()


@contextmanager
def shown_on(terminal: Terminal, **options: float) -> Iterator[LiveTable]:
    """A table on that terminal. Within the test, because pytest sets the streams anew for each of its phases."""
    with redirect_stderr(terminal), LiveTable(**options) as table:
        yield table


def test_a_row_for_each_trial_that_runs(terminal: Terminal) -> None:
    with shown_on(terminal) as table:
        table.update(view(n_failed=2, last_cause="RuntimeError: out\nof memory", seconds_left=4000.0))
        head, names, first, second, best, failed = terminal.text.splitlines()

    assert head == "s: 4 of 20 done, 2 failed, 2 running, about 1 h 7 min left"
    assert names.split() == ["trial", "parameters", "state", "step", "value", "time"]
    assert first.split() == [
        *("10", "lr=0.0", "name=größe-漢字", "path=xxxxxxxxxxx…"),
        *("building", "managers", "0/400", "╌" * 10, "0.5", "0:00"),
    ]
    assert second.split()[-4:] == ["50/400", "━" + "╌" * 9, "0.6", "1:00"]
    assert best == "best 0.93 (trial 3)  lr=0.1"
    assert failed == "2 failed, the last: RuntimeError: out of memory"


def test_log_lines_stand_above_the_table(terminal: Terminal) -> None:
    with shown_on(terminal, refresh_s=0.0) as table:
        for number in range(3):
            table.update(view())
            log.info("line %d", number)
        table.begin(7, "lr=1")
        table.end(8, "failed", 3.0, cause="killed\nby SIGKILL")
        rows = terminal.text.splitlines()

    assert rows[:4] == ["line 0", "line 1", "line 2", "trial 8 failed after 0:03: killed by SIGKILL"]
    assert rows[4].startswith("s: 4 of 20 done")
    assert len(rows) == 4 + 5


def test_updates_come_no_more_often_than_wished(terminal: Terminal) -> None:
    with shown_on(terminal, refresh_s=60.0) as table:
        table.update(view())
        before = terminal.raw
        table.update(view(n_failed=1))

        assert terminal.raw == before


def test_the_terminal_is_left_as_it_was_after_an_error_too(terminal: Terminal) -> None:
    def fail_beside_a_table() -> None:
        with LiveTable() as table:
            table.update(view())
            assert terminal.is_cursor_shown  # a main that is killed now could not show it again
            log.info("a line")
            _ = 1 / 0

    with redirect_stderr(terminal):
        with pytest.raises(ZeroDivisionError):
            fail_beside_a_table()
        assert sys.stderr is terminal
        log.info("after")

    assert terminal.text == "a line\nafter"
    assert terminal.is_cursor_shown


def test_a_line_after_a_resize_stands_above_one_table(terminal: Terminal) -> None:
    with shown_on(terminal) as table:
        table.update(view(4))
        for width in (70, 61, 50):
            terminal.resize(width)
            log.info("now %d", width)
        rows = terminal.text.splitlines()

    assert rows[:3] == ["now 70", "now 61", "now 50"]
    assert len(rows) == 3 + 2 + 4 + 1
    assert terminal.text == "now 70\nnow 61\nnow 50"


@pytest.mark.parametrize("widths", [(70, 61), (61, 120), (60, 100)])
def test_a_resized_window_keeps_one_table(terminal: Terminal, widths: tuple[int, ...]) -> None:
    with shown_on(terminal, refresh_s=0.0) as table:
        log.info("first")
        table.update(view(4))
        for width in widths:
            terminal.resize(width)
            table.update(view(4))

            rows = terminal.text.splitlines()
            assert rows[0] == "first"
            assert len(rows) == 1 + 2 + 4 + 1
        terminal.resize(40)

    assert terminal.text == "first"


@pytest.mark.parametrize("width", [20, 60, 83, 84, 200])
@pytest.mark.parametrize("height", [1, 5, 8, 40])
def test_no_line_is_longer_and_no_table_higher_than_the_terminal(width: int, height: int) -> None:
    lines = table_lines(view(12, n_failed=1, last_cause="x" * 300), width=width, height=height)

    assert len(lines) <= height
    assert max(line.cells for line in lines) <= width
    if height == 8:
        assert lines[-3].text.startswith("and 9 more trials")


def test_a_table_without_signs_for_a_terminal_without_unicode(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "encoding", "ascii", raising=False)

    with shown_on(terminal) as table:
        table.update(view())
        assert terminal.text.isascii()
        assert "#---" in terminal.text


def test_several_objectives_have_a_front(terminal: Terminal) -> None:
    with shown_on(terminal) as table:
        table.update(view(1, best=BestView(number=3, values=(1.0, 2.5), n_front=4)))
        assert "best: 4 on the Pareto front, last trial 3: 1, 2.5" in terminal.text


def test_no_secret_is_shown(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "not-for-eyes")
    with shown_on(terminal) as table:
        table.update(view(n_failed=1, last_cause="no login with not-for-eyes"))
        table.end(1, "failed", 1.0, cause="no login with not-for-eyes")

    assert "no login with ***" in terminal.raw
    assert "not-for-eyes" not in terminal.raw


def test_the_time_left_comes_from_the_trials_that_ended() -> None:
    assert seconds_left([], running_s=[5.0], n_to_begin=3, n_slots=2) is None
    assert seconds_left([10.0, 20.0], running_s=[5.0, 30.0], n_to_begin=4, n_slots=2) == (10 + 4 * 15) / 2
    assert seconds_left([60.0], running_s=[0.0], n_to_begin=0, n_slots=8) == 60.0


# Shows a table for a moment, then fails.
PROGRAM = """
from project.common.processes import logs
from tests.sweeps.shown.test_live_table import LiveTable, view
logs.set_up_terminal()
with LiveTable(line_every_s=0.0) as table:
    table.begin(7, "lr=1")
    table.update(view())
    print("printed")
    table.end(7, "pruned", 62.0, value_text="0.5")
    raise SystemExit(3)
"""


@pytest.mark.parametrize("environ", [{"TERM": "xterm"}, {"TERM": "dumb"}, {"TERM": "xterm", "CI": "true"}])
def test_on_a_real_terminal(environ: dict[str, str]) -> None:
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    clean = {key: value for key, value in os.environ.items() if key not in ("CI", "TERM")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=clean | environ, stdin=slave, stdout=slave, stderr=slave
    )
    assert process.wait(60) == 3
    after = termios.tcgetattr(slave)
    os.close(slave)
    text = os.read(master, 65536).decode()
    os.close(master)

    assert after == before
    assert text.rfind("\x1b[?25l") <= text.rfind("\x1b[?25h")
    assert "printed" in text
    if environ == {"TERM": "xterm"}:
        assert "\x1b[2K" in text
        assert "begins" not in text
    else:
        assert "\x1b" not in text


def test_plain_lines_in_a_pipe() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (3, "printed\n")
    assert done.stderr.splitlines() == [
        "trial 7 begins: lr=1",
        "s: 4 of 20 done, 2 running, best 0.93 (trial 3)",
        "trial 7 pruned after 1:02: 0.5",
    ]
