"""The matrix is as large as it should be, and what is left out says why."""

from pathlib import Path

import pytest

from tests.chaos.cells import Cell, read_table, subset, under_spawn

VICTIMS = {"main", "group", "server", "trial", "rank0", "rank1", "worker", "tracker", "wandb-core"}
EVENTS = {
    *("exception", "sys.exit", "SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGSEGV"),
    *("stopped", "GIL", "memory", "OOM"),
}
PHASES = {"importing", "building", "training", "validating", "saving", "closing"}


def parts(cells: list[Cell]) -> tuple[set[str], set[str], set[str]]:
    return {c.victim for c in cells}, {c.event for c in cells}, {c.phase for c in cells}


def test_every_combination_is_a_cell_or_left_out_with_a_reason() -> None:
    cells, left_out = read_table()
    names = [*(cell.name for cell in cells), *left_out]

    assert sorted(names) == sorted(f"{v}-{e}-{p}" for v in VICTIMS for e in EVENTS for p in PHASES)
    assert len(cells) >= 250
    assert all(len(reason.split()) > 3 for reason in left_out.values())


def test_the_choices_cover_every_victim_event_and_phase() -> None:
    cells, _ = read_table()

    assert parts(subset(cells)) == (VICTIMS, EVENTS, PHASES)
    assert parts(under_spawn(cells)) == (VICTIMS - {"server"}, EVENTS, PHASES)
    assert len(under_spawn(cells)) >= (len(cells) - sum(c.victim == "server" for c in cells)) // 5


def test_a_code_that_is_neither_number_nor_reason_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "cells.txt"
    table.write_text("main importing\nSIGINT z\n\nreasons\na  a reason\n")

    with pytest.raises(ValueError, match="z"):
        read_table(table)


@pytest.mark.parametrize(
    ("cell", "anchor"),
    [
        (Cell(victim="main", event="SIGTERM", phase="training", exit_code=143), "rank0"),
        (Cell(victim="main", event="SIGTERM", phase="closing", exit_code=0), "main"),
        (Cell(victim="worker", event="SIGKILL", phase="saving", exit_code=1), "rank1"),
        (Cell(victim="worker", event="SIGKILL", phase="training", exit_code=1), "rank1-worker0"),
        (Cell(victim="server", event="SIGKILL", phase="importing", exit_code=0), "server"),
    ],
)
def test_a_phase_is_that_of_the_victim_or_of_the_rank_that_it_serves(cell: Cell, anchor: str) -> None:
    assert cell.anchor == anchor
