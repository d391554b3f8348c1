"""The cells of the matrix, read from `cells.txt`, and the fixed choices among them."""

from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("cells.txt")
EVERY = 5  # of the cells, under spawn
OUTSIDE = ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGSEGV", "stopped")  # the runner does it, by a signal
SELF_ANCHORED = ("importing", "building", "closing")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One thing that happens to one process in one phase.

    Args:
        victim: A label of the process tree, `group`, `tracker`, `worker` or `wandb-core`.
        event: A signal, or what happens inside.
        phase: When.
        exit_code: What the run must give.
    """

    victim: str
    event: str
    phase: str
    exit_code: int

    @property
    def name(self) -> str:
        """For selecting and for the table."""
        return f"{self.victim}-{self.event}-{self.phase}"

    @property
    def label(self) -> str:
        """The victim as the process tree calls it."""
        return "rank1-worker0" if self.victim == "worker" else self.victim

    @property
    def anchor(self) -> str:
        """The process whose phase it is."""
        if self.victim in ("rank0", "rank1"):
            return self.victim
        if self.victim == "worker":
            return "rank1" if self.phase == "saving" else self.label
        if self.victim == "server" and self.phase == "importing":
            return "server"
        if self.phase in SELF_ANCHORED and self.victim in ("main", "group", "tracker", "trial"):
            return "trial" if self.victim == "trial" else "main"
        return "rank0"

    @property
    def is_from_outside(self) -> bool:
        """Whether the runner sends a signal; otherwise the victim does it to itself."""
        return self.event in OUTSIDE

    @property
    def is_hang(self) -> bool:
        """Whether the victim lives on and does nothing."""
        return self.event in ("stopped", "GIL")

    @property
    def is_stall(self) -> bool:
        """Whether main itself notices the hang, as a rank that makes no step."""
        return self.is_hang and self.exit_code == 1


def read_table(path: Path = TABLE) -> tuple[list[Cell], dict[str, str]]:
    """The cells in the order of the file, and for each left out (by name) its reason."""
    text = "\n".join(line.partition("#")[0].rstrip() for line in path.read_text().splitlines())
    *grids, last = [block for block in text.split("\n\n") if block.strip()]
    reasons = dict(line.split(None, 1) for line in last.strip().splitlines()[1:])
    cells, left_out = [], {}
    for grid in grids:
        (victim, *phases), *rows = [line.split() for line in grid.strip().splitlines()]
        for event, *codes in rows:
            for phase, code in zip(phases, codes, strict=True):
                if code in reasons:
                    left_out[f"{victim}-{event}-{phase}"] = reasons[code]
                else:
                    cells.append(Cell(victim=victim, event=event, phase=phase, exit_code=int(code)))
    return cells, left_out


def under_spawn(cells: list[Cell]) -> list[Cell]:
    """The fixed fifth that runs under spawn, too: from the fourth, so that every event is among them."""
    return [cell for cell in cells if cell.victim != "server"][3::EVERY]  # there is no server


def subset(cells: list[Cell]) -> list[Cell]:
    """A fixed choice in which every victim, event and phase appears: next is always what adds most that is new."""
    chosen: list[Cell] = []
    seen: set[tuple[str, str]] = set()
    while True:
        best = max(cells, key=lambda cell: len(_pairs(cell) - seen))
        if not _pairs(best) - seen:
            return sorted(chosen, key=cells.index)
        chosen.append(best)
        seen |= _pairs(best)


def _pairs(cell: Cell) -> set[tuple[str, str]]:
    """What a choice should cover: each event, each phase, and of each victim a crash, a stop signal and a hang."""
    kind = "hang" if cell.is_hang else "stop" if cell.event in ("SIGINT", "SIGTERM", "SIGHUP") else "crash"
    return {("event", cell.event), ("phase", cell.phase), (cell.victim, kind)}
