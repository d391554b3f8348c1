"""Collation, accumulation and smaller parts on out-of-memory."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from project.common.data.collate import Collate, split_batch
from project.common.errors import ConfigError, DataError
from project.common.managers.batch import BatchManager
from tests.helpers.data import tokenizer_manager, word_rows


def row(number: int, ids: list[int], **more: Any) -> dict[str, Any]:
    return {"row": number, "length": len(ids), "input_ids": np.array(ids, dtype=np.int32), **more}


def test_pads_to_the_longest_row_of_the_batch() -> None:
    batch = Collate(pad_token_id=9)([row(4, [1, 2, 3], label=1), row(7, [5], label=0)])

    assert batch["input_ids"].tolist() == [[1, 2, 3], [5, 9, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [1, 0]
    assert batch["row"].tolist() == [4, 7]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_pads_on_the_left_and_to_a_multiple_when_asked() -> None:
    batch = Collate(pad_token_id=0, padding_side="left", pad_multiple=4)([row(0, [1, 2]), row(1, [3])])

    assert batch["input_ids"].tolist() == [[0, 0, 1, 2], [0, 0, 0, 3]]
    assert batch["attention_mask"].tolist() == [[0, 0, 1, 1], [0, 0, 0, 1]]


def test_rows_without_label_predict_their_own_tokens_but_no_padding() -> None:
    # The padding token is also a real one here, as with tokenizers that pad by their end token.
    batch = Collate(pad_token_id=3)([row(0, [1, 3]), row(1, [2])])

    assert batch["labels"].tolist() == [[1, 3], [2, -100]]


def test_features_are_stacked() -> None:
    rows = [{"row": i, "length": 1, "label": 0, "features": np.full(3, i, dtype=np.float32)} for i in range(2)]
    batch = BatchManager(batch_size=2).collate(rows)

    assert batch["features"].tolist() == [[0, 0, 0], [1, 1, 1]]
    assert "input_ids" not in batch


def test_collating_takes_what_it_needs_from_the_tokenizer_and_can_be_pickled(tmp_path: Path) -> None:
    tokenizer = tokenizer_manager(tmp_path)
    tokenizer.prepare(lambda: [row["text"] for row in word_rows()], fingerprint="x")
    manager = BatchManager(tokenizer=tokenizer, batch_size=4, pad_multiple=8)
    collate = pickle.loads(pickle.dumps(manager.collate))
    tokenizer.close()

    assert collate == Collate(pad_token_id=0, padding_side="right", pad_multiple=8)


@pytest.mark.parametrize(("world_size", "expected"), [(1, 8), (2, 4), (4, 2), (8, 1)])
def test_accumulates_to_the_same_effective_batch_on_any_number_of_devices(world_size: int, expected: int) -> None:
    rows = BatchManager(batch_size=4, effective_batch_size=32)
    tokens = BatchManager(batch_size=4, token_budget=512, effective_token_budget=4096)

    assert rows.accumulation(world_size) == tokens.accumulation(world_size) == expected
    assert BatchManager(batch_size=4).accumulation(world_size) == 1


def test_an_effective_batch_that_does_not_divide_is_refused_with_one_that_does() -> None:
    manager = BatchManager(batch_size=8, effective_batch_size=40)

    with pytest.raises(
        ConfigError, match=r"effective_batch_size: 40 rows are no multiple of 24 \(8 rows on 3 devices\); use 48"
    ):
        manager.accumulation(3)


def test_the_same_rows_make_an_optimizer_step_on_one_device_and_on_two() -> None:
    manager = BatchManager(batch_size=4, effective_batch_size=16, bucket_batches=3, seed=5)
    lengths = np.arange(160) % 17 + 1

    def steps(world_size: int) -> list[set[int]]:
        samplers = [manager.train_sampler(lengths, rank=rank, world_size=world_size) for rank in range(world_size)]
        batches = [[{row for _, row in batch} for batch in sampler] for sampler in samplers]
        size = manager.accumulation(world_size)
        return [
            set().union(*(batch for rank in batches for batch in rank[start : start + size]))
            for start in range(0, len(batches[0]), size)
        ]

    assert steps(1) == steps(2) == steps(4)


def test_all_impossible_settings_are_told_together() -> None:
    with pytest.raises(ConfigError) as caught:
        BatchManager(batch_size=0, bucket_batches=-1, last_batch="pad", token_budget=64, effective_batch_size=8)

    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "managers.batch.batch_size",
        "managers.batch.bucket_batches",
        "managers.batch.last_batch",
        "loader.effective_batch_size",
    ]


def test_batch_normalisation_refuses_a_batch_of_one_row_before_training() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    keep, merge = BatchManager(batch_size=4), BatchManager(batch_size=4, last_batch="merge")

    with pytest.raises(DataError, match=r"9 rows in batches of 4 leave a batch of 1 row, .*\(1\).*drop or merge"):
        keep.refuse_single_rows(module, keep.train_sampler([1] * 9))
    merge.refuse_single_rows(module, merge.train_sampler([1] * 9))
    keep.refuse_single_rows(module, keep.train_sampler([1] * 17, world_size=2))
    keep.refuse_single_rows(torch.nn.Linear(2, 2), keep.train_sampler([1] * 9))


def gradient(batch: dict[str, torch.Tensor], *, fits: int) -> tuple[torch.Tensor, list[int], int]:
    """Returns the gradient, the sizes of the parts, and how many parts the manager says there were."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).double()
    manager, sizes = BatchManager(batch_size=8), []

    def step(part: dict[str, torch.Tensor], share: float) -> None:
        loss = torch.nn.functional.cross_entropy(model(part["features"].double()), part["labels"])
        (loss * share).backward()
        # After backward: a failed attempt has left something in the gradients.
        if len(part["labels"]) > fits:
            raise torch.OutOfMemoryError("not enough memory")
        sizes.append(len(part["labels"]))

    n_parts = manager.run_within_memory(batch, step, undo=model.zero_grad)
    assert model.weight.grad is not None
    return model.weight.grad, sizes, n_parts


def test_out_of_memory_runs_smaller_parts_to_the_same_gradient() -> None:
    batch = {"features": torch.randn(7, 3), "labels": torch.tensor([0, 1, 1, 0, 1, 0, 0])}
    whole, sizes, n_parts = gradient(batch, fits=7)
    parts, part_sizes, n_smaller = gradient(batch, fits=2)

    assert (sizes, n_parts) == ([7], 1)
    assert (part_sizes, n_smaller) == ([2, 2, 2, 1], 4)
    torch.testing.assert_close(parts, whole)


def test_out_of_memory_with_a_single_row_is_raised() -> None:
    batch = {"features": torch.randn(3, 3), "labels": torch.tensor([0, 1, 1])}

    with pytest.raises(torch.OutOfMemoryError):
        gradient(batch, fits=0)


def test_shares_of_language_modelling_count_predicted_tokens() -> None:
    batch = Collate(pad_token_id=0)([row(0, [1, 2, 3, 4, 5]), row(1, [1, 2])])

    assert [share for _, share in split_batch(batch, parts=2)] == [4 / 5, 1 / 5]
