"""A child that reads every row of a file, and what of the file lies in its memory then."""

from pathlib import Path
from typing import Any

import psutil

from project.common.data.rows import ArrowRows


def read_all(rows: ArrowRows, link: Any) -> None:
    """Reads, and when told to measures; sends the file's resident and proportional size and its own growth, in MB."""
    before = psutil.Process().memory_full_info().uss
    for number in range(0, len(rows), 8):
        assert rows[number]["text"]
    link.send("read")
    link.recv()
    sizes = mapped(rows.path)
    grown = psutil.Process().memory_full_info().uss - before
    link.send((sizes["Rss"] / 1024, sizes["Pss"] / 1024, grown / 2**20))
    link.recv()  # until all have measured


def mapped(path: str) -> dict[str, int]:
    """Sizes in kB of the mappings of a file in this process, by the kernel's names."""
    found: dict[str, int] = {"Rss": 0, "Pss": 0}
    is_ours = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, value = line.partition(":")
        if "-" in name.split(" ")[0] and " " in name:
            is_ours = line.endswith(path)
        elif is_ours and name in found:
            found[name] += int(value.split()[0])
    return found
