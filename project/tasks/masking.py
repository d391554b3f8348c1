"""Masked language modelling (Devlin et al. 2019): some tokens are hidden, and the model has to say which they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

IGNORED = -100


def mask_tokens(
    row: dict[str, Any],
    generator: np.random.Generator,
    *,
    vocab_size: int,
    mask_token_id: int,
    special_token_ids: Sequence[int] = (),
    probability: float = 0.15,
) -> dict[str, Any]:
    """Returns the row with some `input_ids` hidden, and `labels`: what they were, -100 where nothing is hidden.

    Of the hidden ones 8 in 10 become the mask token, 1 in 10 any token, and 1 in 10 stays. Special tokens are never
    hidden, nor is the first token of a row: a causal model does not predict it either, so losses are means over the
    same number of places. A row of two tokens or more has at least one hidden, if all are not special.

    Args:
        row: with `input_ids` [t].
        generator: what is hidden follows from it alone.
        vocab_size: number of tokens.
        mask_token_id: stands for a hidden token.
        special_token_ids: never hidden.
        probability: share of the tokens that are hidden.

    Raises:
        ValueError: the probability is not above 0 and below 1.
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability: {probability} is no share of tokens to hide; use more than 0 and less than 1")
    ids = np.array(row["input_ids"], dtype=np.int64)
    may_hide = ~np.isin(ids, special_token_ids)
    may_hide[:1] = False
    draws = generator.random((2, len(ids)))
    chosen = may_hide & (draws[0] < probability)
    if not chosen.any() and may_hide.any():
        chosen[np.where(may_hide, draws[0], 2.0).argmin()] = True
    labels = np.where(chosen, ids, IGNORED)
    others = generator.integers(vocab_size, size=len(ids))
    hidden = np.where(draws[1] < 0.8, mask_token_id, np.where(draws[1] < 0.9, others, ids))
    return row | {"input_ids": np.where(chosen, hidden, ids), "labels": labels}
