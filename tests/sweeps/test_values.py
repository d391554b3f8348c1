"""What a task function returned becomes numbers, or one clear text."""

from array import array
from typing import Any

import numpy as np
import pytest
import torch

from project.sweeps.values import objectives


class Odd:
    """Neither converts nor shows itself."""

    def __float__(self) -> float:
        raise RuntimeError("not now")

    def __repr__(self) -> str:
        raise RuntimeError("not now")


ONE = [
    *(0.5, np.float32(0.5), np.array(0.5), np.array([0.5]), torch.tensor(0.5), torch.tensor([0.5], requires_grad=True)),
    *(torch.tensor(0.5, dtype=torch.bfloat16), (0.5,), [np.float16(0.5)]),
]
TWO = [
    *((0.5, 2), [np.float64(0.5), torch.tensor(2)], np.array([0.5, 2]), torch.tensor([0.5, 2]), array("d", [0.5, 2])),
]


@pytest.mark.parametrize("value", ONE, ids=repr)
def test_a_number_in_any_of_its_forms_is_taken(value: Any) -> None:
    assert objectives(value, ["loss"]) == ([0.5], None)


@pytest.mark.parametrize("value", TWO, ids=repr)
def test_as_many_as_there_are_metrics_are_taken(value: Any) -> None:
    """Arrays and tensors of two were one value, and no number."""
    assert objectives(value, ["loss", "size"]) == ([0.5, 2.0], None)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "loss is None (NoneType), which is no number"),
        ({"loss": 1}, "loss is {'loss': 1} (dict), which is no number"),
        ("0.5", "loss is '0.5', which is no value to optimise"),
        (b"1", "loss is b'1', which is no value to optimise"),
        (True, "loss is True, which is no value to optimise"),
        (np.bool_(True), "loss is True, which is no value to optimise"),
        (torch.tensor(float("nan")), "loss is nan, which is no value to optimise"),
        (10**400, f"loss is 1{'0' * 99}…, which is no value to optimise"),
        (10**5000, "loss is an object that cannot be shown, which is no value to optimise"),
        (Odd(), "loss is an object that cannot be shown (Odd), which is no number"),
        (torch.tensor([[1.0, 2.0]]), "loss is [1.0, 2.0] (list), which is no number"),
        (torch.empty(1, device="meta"), "loss is tensor(..., device='meta', size=(1,)) (Tensor), which is no number"),
        ((1.0, 2.0), "returned 2 values for 1 metrics (loss)"),
        ([], "returned 0 values for 1 metrics (loss)"),
    ],
    ids=lambda it: it if isinstance(it, str) else type(it).__name__,
)
def test_anything_else_is_refused_in_one_text(value: Any, text: str) -> None:
    """A number too large, or an object whose conversion raises its own error, ended the whole sweep."""
    assert objectives(value, ["loss"]) == (None, text)


@pytest.mark.parametrize("value", [0.5, None, "ab", b"ab", (1, 2, 3), torch.tensor(1.0)], ids=repr)
def test_another_number_of_values_is_refused(value: Any) -> None:
    """Two bytes were two values."""
    n = 3 if isinstance(value, tuple) else 1
    assert objectives(value, ["loss", "size"]) == (None, f"returned {n} values for 2 metrics (loss, size)")
