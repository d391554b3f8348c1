"""What every process of a run holds, noted while it trains."""

import json
import os
from pathlib import Path
from typing import Any

import psutil
from lightning.pytorch.callbacks import Callback

from project.common.managers import get_directory_manager
from project.common.process_registry import read_run

NOTES = "memory.jsonl"


class MemoryNotes(Callback):
    """Rank 0 notes private memory (USS, in MB) and open descriptors of each living process of its run.

    Args:
        every: So many epochs apart.
    """

    def __init__(self, *, every: int) -> None:
        self._every = every

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        epoch = trainer.current_epoch + 1
        if epoch % self._every or trainer.global_rank != 0:
            return
        run_dir = get_directory_manager().run_dir
        note = {"epoch": epoch, "shm": len(os.listdir("/dev/shm")), "held": held(run_dir)}
        with (run_dir / NOTES).open("a") as file:
            file.write(json.dumps(note) + "\n")


def held(run_dir: Path) -> dict[str, dict[str, float]]:
    """By label: `uss` in MB and `files`, the number of open descriptors. One that is just ending is left out."""
    found = {}
    for record in read_run(run_dir):
        if not record.key.is_alive():
            continue
        try:
            process = psutil.Process(record.key.pid)
            found[record.identity.label] = {
                "uss": process.memory_full_info().uss / 2**20,
                "files": process.num_fds(),
                "threads": process.num_threads(),
            }
        except psutil.Error:
            continue
    return found


def read_notes(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / NOTES).read_text().splitlines()]
