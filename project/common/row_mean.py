"""A mean over rows, exact over batches of any size and over ranks."""

import torch
from torchmetrics import Metric

# torchmetrics' own MeanMetric forgets the weights under nan_strategy="disable" (1.9), and drops or warns of NaN under
# the others: here weights count, and a loss that is NaN stays NaN, so that a diverged run shows.


class RowMean(Metric):
    """Weighted mean of what `update` is given."""

    full_state_update = False
    total: torch.Tensor
    weight: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        dtype = torch.float32 if torch.backends.mps.is_available() else torch.float64
        self.add_state("total", torch.zeros((), dtype=dtype), dist_reduce_fx="sum")
        self.add_state("weight", torch.zeros((), dtype=dtype), dist_reduce_fx="sum")

    def update(self, value: torch.Tensor, weight: int | torch.Tensor = 1) -> None:
        """Adds a batch's mean `value` of `weight` rows."""
        self.total += value.detach().to(self.total.dtype) * weight
        self.weight += weight

    def compute(self) -> torch.Tensor:
        """The mean of all rows so far; NaN when there was none."""
        return self.total / self.weight
