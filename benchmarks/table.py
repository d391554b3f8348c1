"""The table of a benchmark, for people and as a file."""

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Args:
        what: What was measured.
        value: The result, in `unit`; None when what it needs is not installed, as `detail` says.
        aim: At most this, or at least with `at_least`; None is for information.
        detail: What the value was made of.
    """

    what: str
    value: float | None
    unit: str
    aim: float | None = None
    at_least: bool = False
    detail: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether the aim is met; True without one, or when there is nothing to compare with."""
        if self.aim is None or self.value is None:
            return True
        return self.value >= self.aim if self.at_least else self.value <= self.aim

    def as_texts(self) -> list[str]:
        """Cells of the table."""
        word = "at least" if self.at_least else "at most"
        aim = "" if self.aim is None else f"{word} {self.aim:g} {self.unit}"
        if self.value is None:
            return [self.what, "not measured", aim, "?", self.detail]
        verdict = "" if self.aim is None else ("ok" if self.is_ok else "MISSED")
        return [self.what, f"{self.value:.3g} {self.unit}", aim, verdict, self.detail]


def machine() -> dict[str, Any]:
    """Facts of this machine that results depend on; nothing that names it."""
    import psutil

    from project.training.report import versions

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory_gb = round(psutil.virtual_memory().total / 2**30)
    return {"cores": cores, "memory_gb": memory_gb, "load": round(os.getloadavg()[0], 1), "versions": versions()}


def print_table(rows: list[Row], facts: dict[str, Any]) -> None:
    """Prints the table for people."""
    from rich.console import Console
    from rich.table import Table

    table = Table("measured", "result", "aim", "", "of", title=_title(facts))
    for row in rows:
        table.add_row(*row.as_texts())
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _title(facts: dict[str, Any]) -> str:
    return f"{facts['cores']} cores, {facts['memory_gb']} GB, load before {facts['load']}; medians"


def write_results(path: Path, rows: list[Row], facts: dict[str, Any]) -> None:
    """Writes the table as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    date = time.strftime("%Y-%m-%d")
    judged = [asdict(row) | {"ok": None if row.value is None else row.is_ok} for row in rows]
    content = {"date": date, **facts, "rows": judged}
    path.write_text(json.dumps(content, indent=1) + "\n")
