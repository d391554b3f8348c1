"""States that checkpoints must refuse, and a child that saves until it is killed."""

from typing import Any

import torch

from project.common.files.checkpoint_file import save_checkpoint_file


class Custom:
    """No tensor and no plain container."""


class FailsWhenSaved:
    """Fails in the middle of saving."""

    def __reduce__(self) -> Any:
        raise RuntimeError("cannot be saved")


def save_forever(path: str) -> None:
    """Replaces `path` again and again."""
    value = 0.0
    while True:
        value += 1
        save_checkpoint_file(path, {"state_dict": {"weight": torch.full((1000, 1000), value)}})
