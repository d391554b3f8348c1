"""Random state as a function of numbers, so that it never has to be saved."""

import random
from typing import Any

_MASK = (1 << 63) - 1


def mix(*numbers: int) -> int:
    """One seed from several numbers; neighbours give unrelated seeds (the mixer of SplitMix64)."""
    value = 0
    for number in numbers:
        value = (value + number + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        value ^= value >> 31
    return value & _MASK


def seed_process(*numbers: int) -> None:
    """Seeds Python, NumPy and torch (the CPU, and devices that have started) in this process; cheap."""
    import numpy
    import torch

    seed = mix(*numbers)
    random.seed(seed)
    numpy.random.seed(seed & 0xFFFFFFFF)  # the legacy state is what libraries draw from
    # torch.manual_seed also leaves a note with a stack trace for every kind of device that is not started yet: 4 ms a
    # call, and the notes are kept.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)


def generator(*numbers: int) -> Any:
    """A torch generator of its own, so that iterating a loader draws nothing from the process's."""
    import torch

    return torch.Generator().manual_seed(mix(*numbers))
