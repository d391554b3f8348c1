"""What each process of a training says of its compute threads."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback

from project.common.managers import get_batch_manager
from project.common.processes.identity import current_identity

NAMES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY")


def note_threads(folder: str) -> None:
    """Leaves a file with this process's number of threads and what it was told of them."""
    identity = current_identity()
    assert identity is not None
    facts = {"torch": torch.get_num_threads()} | {name: os.environ.get(name) for name in NAMES}
    Path(folder, f"{identity.label}.threads").write_text(json.dumps(facts))


class Note(Callback):
    """Has each rank and each of its workers note their threads."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        note_threads(self.folder)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        batches = get_batch_manager()
        collate = _NotingCollate(batches.collate, self.folder)
        type(batches).collate = property(lambda manager: collate)  # type: ignore[assignment,method-assign]


class _NotingCollate:
    def __init__(self, collate: Any, folder: str) -> None:
        self.collate, self.folder = collate, folder

    def __call__(self, rows: Any) -> Any:
        note_threads(self.folder)
        return self.collate(rows)
