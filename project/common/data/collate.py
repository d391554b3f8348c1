"""Rows become tensors: what a DataLoader's workers are given, so it is small and can be pickled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

IGNORED_LABEL = -100


@dataclass(frozen=True, kw_only=True)
class Collate:
    """Pads rows to the longest of the batch; holds plain numbers only.

    Args:
        pad_token_id: what padding consists of; None for rows without `input_ids`.
        padding_side: `right` or `left`.
        pad_multiple: the padded length is a multiple of this; 8 suits tensor cores.
    """

    pad_token_id: int | None
    padding_side: str = "right"
    pad_multiple: int = 1

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> "dict[str, Tensor]":
        """Returns `input_ids` and `attention_mask` [b t], `labels` [b], `row` [b], all int64, and what else rows hold.

        Rows without `label` are for language modelling: `labels` [b t] are theirs, or else the tokens, -100 where there
        is padding.
        """
        import torch

        batch: dict[str, Tensor] = {}
        if "input_ids" in rows[0]:
            batch |= self._pad([row["input_ids"] for row in rows])
        if "label" in rows[0]:
            batch["labels"] = torch.tensor([row["label"] for row in rows], dtype=torch.int64)
        elif "labels" in rows[0]:
            batch["labels"] = torch.full_like(batch["input_ids"], IGNORED_LABEL)
            for index, row in enumerate(rows):
                batch["labels"][index, batch["attention_mask"][index] == 1] = torch.from_numpy(row["labels"])
        elif "input_ids" in batch:
            batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED_LABEL)
        for name in rows[0]:
            if name not in {"input_ids", "label", "labels", "length"}:
                batch[name] = torch.from_numpy(np.stack([np.asarray(row[name]) for row in rows]))
        return batch

    def _pad(self, sequences: Sequence[Sequence[int]]) -> "dict[str, Tensor]":
        import torch

        if self.pad_token_id is None:
            raise ValueError("pad_token_id: None, but the rows hold input_ids; configure managers.tokenizer")
        longest = max(1, *(len(sequence) for sequence in sequences))
        longest = -(-longest // self.pad_multiple) * self.pad_multiple
        ids = np.full((len(sequences), longest), self.pad_token_id, dtype=np.int64)
        mask = np.zeros_like(ids)
        for index, sequence in enumerate(sequences):
            place = slice(longest - len(sequence), None) if self.padding_side == "left" else slice(len(sequence))
            ids[index, place] = sequence
            mask[index, place] = 1
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}


def split_batch(batch: "Mapping[str, Tensor]", *, parts: int) -> "list[tuple[dict[str, Tensor], float]]":
    """Cuts a batch into at most `parts` smaller ones, each with its share of the batch's mean loss.

    The shares add up to 1: backward over each part's mean loss times its share sums to the whole batch's gradient.
    A share counts rows; for language modelling it counts the tokens that are predicted, the first of a row is not.
    """
    n_rows = len(next(iter(batch.values())))
    size = -(-n_rows // parts)
    pieces = [
        {name: tensor[start : start + size] for name, tensor in batch.items()} for start in range(0, n_rows, size)
    ]
    weights = [_weight(piece) for piece in pieces]
    total = sum(weights) or 1
    return [(piece, weight / total) for piece, weight in zip(pieces, weights, strict=True)]


def _weight(batch: "Mapping[str, Tensor]") -> int:
    labels = batch.get("labels")
    if labels is not None and labels.dim() == 2:
        return int((labels[:, 1:] != IGNORED_LABEL).sum())
    return len(next(iter(batch.values())))
