"""The default task as a careful user writes it by hand, without this project: what its overhead is measured against.

Same model, tokenised rows, batches of similar lengths, optimizer, schedule and steps; validated every epoch, the best
and the last checkpoint kept, metrics in a CSV file, the best checkpoint tested. Nothing of `project` is imported.
"""

import argparse
import json
import math
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from datasets import Dataset
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Sampler
from torchmetrics.classification import MulticlassAccuracy
from transformers import (
    ModernBertConfig,
    ModernBertForSequenceClassification,
    PreTrainedTokenizerFast,
    get_cosine_schedule_with_warmup,
)

SIMILAR = 50  # the rows of this many batches are sorted by length


class Collate:
    """Pads rows to the longest of their batch."""

    def __init__(self, pad_token_id: int) -> None:
        self.pad_token_id = pad_token_id

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        """Returns `input_ids` and `attention_mask` [b t] and `labels` [b]; b batch, t time."""
        longest = max(len(row["input_ids"]) for row in rows)
        ids = torch.full((len(rows), longest), self.pad_token_id)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(rows):
            ids[index, : len(row["input_ids"])] = torch.as_tensor(row["input_ids"])
            mask[index, : len(row["input_ids"])] = 1
        return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([row["label"] for row in rows])}


class SimilarLengths(Sampler[list[int]]):
    """Batches of similar lengths in a random order."""

    def __init__(self, lengths: list[int], *, batch_size: int) -> None:
        self.lengths, self.batch_size = lengths, batch_size

    def __len__(self) -> int:
        return math.ceil(len(self.lengths) / self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = random.sample(range(len(self.lengths)), len(self.lengths))
        size = self.batch_size * SIMILAR
        order = [
            i for at in range(0, len(order), size) for i in sorted(order[at : at + size], key=self.lengths.__getitem__)
        ]
        batches = [order[at : at + self.batch_size] for at in range(0, len(order), self.batch_size)]
        random.shuffle(batches)
        return iter(batches)


class Classifier(pl.LightningModule):
    """A small ModernBERT with AdamW and a cosine schedule."""

    def __init__(
        self, settings: dict[str, Any], *, vocab_size: int, pad_token_id: int, n_labels: int, n_steps: int
    ) -> None:
        super().__init__()
        width, n_layers, dropout = settings["width"], settings["n_layers"], settings["dropout"]
        config = ModernBertConfig(
            vocab_size=vocab_size,
            pad_token_id=pad_token_id,
            num_labels=n_labels,
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=n_layers,
            num_attention_heads=width // 32,
            layer_types=["full_attention"] * n_layers,
            embedding_dropout=dropout,
            mlp_dropout=dropout,
            classifier_dropout=dropout,
            classifier_pooling="mean",
            bos_token_id=None,
            eos_token_id=None,
            cls_token_id=None,
            sep_token_id=None,
        )
        self.model = ModernBertForSequenceClassification(config)
        self.val_acc = MulticlassAccuracy(num_classes=n_labels, average="micro")
        self.test_acc = MulticlassAccuracy(num_classes=n_labels, average="micro")
        self.optimizer_settings = settings["optimizer"]
        self.label_smoothing = settings["label_smoothing"]
        self.warmup_fraction = settings["warmup_fraction"]
        self.n_steps = n_steps

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        logits = self.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        loss = cross_entropy(logits, batch["labels"], label_smoothing=self.label_smoothing)
        self.log("train/loss", loss, on_step=True, on_epoch=True, batch_size=len(batch["labels"]))
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self._evaluate(batch, "val", self.val_acc)

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self._evaluate(batch, "test", self.test_acc)

    def _evaluate(self, batch: dict[str, Tensor], split: str, accuracy: MulticlassAccuracy) -> None:
        outputs = self.model(**batch)
        accuracy(outputs.logits, batch["labels"])
        self.log(f"{split}/loss", outputs.loss, batch_size=len(batch["labels"]))
        self.log(f"{split}/acc", accuracy, on_step=False, on_epoch=True)

    def configure_optimizers(self) -> Any:
        matrices = [p for p in self.parameters() if p.ndim >= 2]
        others = [p for p in self.parameters() if p.ndim < 2]
        groups: list[dict[str, Any]] = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, **self.optimizer_settings)
        schedule = get_cosine_schedule_with_warmup(optimizer, round(self.warmup_fraction * self.n_steps), self.n_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("data", "tokenizer", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--settings", type=json.loads, required=True, help="numbers of the default task, as JSON")
    arguments = parser.parse_args()
    settings, batch_size = arguments.settings, arguments.settings["batch_size"]
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    pl.seed_everything(1, verbose=False)

    tokenizer = PreTrainedTokenizerFast.from_pretrained(arguments.tokenizer)
    splits = {split: Dataset.from_file(str(arguments.data / f"{split}.arrow")) for split in ("train", "val", "test")}
    collate = Collate(tokenizer.pad_token_id)
    sampler = SimilarLengths(list(splits["train"]["length"]), batch_size=batch_size)
    # So few rows fit into memory, and a list is faster than any format of a data set.
    train, val, test = (part.select_columns(["input_ids", "label"]).to_list() for part in splits.values())
    train_loader = DataLoader(train, batch_sampler=sampler, collate_fn=collate)
    val_loader, test_loader = (DataLoader(part, batch_size=batch_size, collate_fn=collate) for part in (val, test))
    model = Classifier(
        settings,
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        n_labels=len(set(splits["train"]["label"])),
        n_steps=settings["epochs"] * len(sampler),
    )
    trainer = pl.Trainer(
        max_epochs=settings["epochs"],
        accelerator="cpu",
        devices=1,
        gradient_clip_val=settings["gradient_clip_val"],
        log_every_n_steps=20,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=CSVLogger(arguments.out),
        callbacks=[ModelCheckpoint(monitor="val/acc", mode="max", save_last=True)],
        default_root_dir=arguments.out,
    )
    trainer.fit(model, train_loader, val_loader)
    n_parameters = sum(p.numel() for p in model.model.parameters())
    steps = trainer.global_step
    (metrics,) = trainer.test(model, test_loader, ckpt_path="best", verbose=False)
    result = {"steps": steps, "parameters": n_parameters, "acc": metrics["test/acc"]}
    (arguments.out / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
