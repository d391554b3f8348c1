"""A torch module of one's own: a small convolutional network for square images."""

from __future__ import annotations

import math
from types import SimpleNamespace

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Two convolutions with batch normalisation, the mean over the image, and a linear layer.

    b batch, n pixels, k classes.

    Args:
        n_labels: k.
        width: channels of the first convolution; the second has twice as many.
        dropout: before the linear layer.
    """

    def __init__(self, *, n_labels: int, width: int = 16, dropout: float = 0.1) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width: {width} is no number of channels; use 1 or more")
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(8 * width, n_labels),
        )

    def forward(self, features: Tensor, labels: Tensor | None = None) -> SimpleNamespace:
        """Returns `.logits` [b k] and `.loss`, the mean cross-entropy or None.

        Args:
            features: [b n], images row by row.
            labels: [b].
        """
        side = math.isqrt(features.shape[-1])
        logits = self.layers(features.view(-1, 1, side, side))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SimpleNamespace(logits=logits, loss=loss)
