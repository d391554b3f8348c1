"""Callbacks that change, or note, what a process has only once."""

import json
import logging
import os
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback

from project.common.managers import get_directory_manager

VARIABLE = "LEFT_BY_A_RUN"


def process_wide() -> dict[str, Any]:
    """Settings that belong to the whole process."""
    return {
        "variable": os.environ.get(VARIABLE),
        "dtype": str(torch.get_default_dtype()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "level": logging.getLogger("lightning.pytorch").level,
        "group": torch.distributed.is_initialized(),
        "draw": torch.rand(1).item(),
    }


class Spoil(Callback):
    """Notes the settings at the start of training in `process_wide.json`, then changes all of them and leaves them."""

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        path = get_directory_manager().run_dir / "process_wide.json"
        path.write_text(json.dumps(process_wide()))

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        os.environ[VARIABLE] = "yes"
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        logging.getLogger("lightning.pytorch").setLevel(1)
        torch.manual_seed(99)


class Multiply(Callback):
    """Has every native thread of the rank's libraries at work before its workers start."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        import numpy as np

        square = torch.ones(600, 600)
        assert (square @ square)[0, 0] == 600
        assert (np.ones((600, 600)) @ np.ones((600, 600)))[0, 0] == 600
