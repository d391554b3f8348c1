"""What a model predicts for each row, and the file that has it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from project.common.data.collate import IGNORED_LABEL
from project.common.files.atomic import atomic_file
from project.common.managers import get_data_manager, get_tokenizer_manager

if TYPE_CHECKING:
    import pyarrow as pa

    from project.training.module import Module


def predicted(batch: Mapping[str, Tensor], logits: Tensor) -> dict[str, Tensor]:
    """Returns of each row its `label` [b] and the `probabilities` [b k] of the classes; of a language model's rows the
    mean `loss` [b] over `n_tokens` [b].

    b batch, k classes.
    """
    labels = batch["labels"]
    if labels.dim() == 1:
        return {"row": batch["row"], "label": labels, "probabilities": logits.float().softmax(dim=-1)}
    # Labels that are the inputs themselves can only be meant for the place before them.
    is_shifted = bool((labels == batch["input_ids"])[labels != IGNORED_LABEL].all())
    labels = labels[:, 1:]
    logits = logits[:, :-1] if is_shifted else logits[:, 1:]
    losses = nn.functional.cross_entropy(logits.float().transpose(1, 2), labels, reduction="none")
    n_tokens = (labels != IGNORED_LABEL).sum(dim=1)
    return {"row": batch["row"], "loss": losses.sum(dim=1) / n_tokens.clamp(min=1), "n_tokens": n_tokens}


def write_predictions(path: Path, module: "Module", *, split: str, labels: list[str]) -> None:
    """Writes a row per row of the split, as Parquet.

    For classes: row, text, label, prediction, probabilities (in the order of the labels). For a language model: row,
    text, loss, n_tokens; the perplexity is exp of the mean of the losses, weighted by n_tokens.
    """
    from pyarrow import parquet

    assert module.predictions is not None
    columns = {name: torch.cat([part[name] for part in module.predictions]) for name in module.predictions[0]}
    order = columns["row"].argsort()
    columns = {name: values[order] for name, values in columns.items()}
    rows = columns.pop("row").tolist()
    table = _table(rows, _texts(split, rows), columns, labels=labels)
    with atomic_file(path, mode="wb") as file:
        parquet.write_table(table.replace_schema_metadata({"split": split, "labels": "\n".join(labels)}), file)


def _table(
    rows: list[int], texts: list[str] | None, columns: Mapping[str, Tensor], *, labels: Sequence[str]
) -> "pa.Table":
    import pyarrow as pa

    found: dict[str, Any] = {"row": rows} | ({"text": texts} if texts is not None else {})
    if "probabilities" not in columns:
        return pa.table(found | {name: values.tolist() for name, values in columns.items()})
    probabilities = columns["probabilities"]
    return pa.table(
        found
        | {
            "label": [labels[index] for index in columns["label"]],
            "prediction": [labels[index] for index in probabilities.argmax(dim=-1)],
            "probabilities": pa.array(probabilities.tolist(), type=pa.list_(pa.float32())),
        }
    )


def _texts(split: str, rows: Sequence[int]) -> list[str] | None:
    """Texts as they were given, or of blocks what their tokens say; None for rows without text."""
    dataset = get_data_manager().dataset(split)
    if "text" in dataset.column_names:
        texts = get_data_manager().texts(split)
        return [texts[row] for row in rows]
    if "input_ids" not in dataset.column_names:
        return None
    decode = get_tokenizer_manager().tokenizer.decode
    return [decode(ids) for ids in dataset["input_ids"]]
