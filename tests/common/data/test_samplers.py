"""Batches of an epoch: which rows, in which order, on which rank."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from project.common.data.samplers import BatchPlan, EpochBatchSampler, EvalBatchSampler
from project.common.errors import DataError
from tests.helpers.data import result_of, start

LENGTHS = np.random.default_rng(0).integers(1, 60, size=203)
PLANS = {
    "plain": BatchPlan(batch_size=8, seed=3),
    "buckets": BatchPlan(batch_size=8, bucket_batches=5, seed=3),
    "tokens": BatchPlan(batch_size=8, token_budget=256, pad_multiple=8, seed=3),
}


def rows_of(sampler: EpochBatchSampler | EvalBatchSampler) -> list[int]:
    return [index for batch in sampler for _, index in batch]


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_every_row_is_trained_on_once_an_epoch(plan: BatchPlan) -> None:
    sampler = EpochBatchSampler(LENGTHS, plan=plan)

    assert sorted(rows_of(sampler)) == list(range(len(LENGTHS)))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_order_follows_from_seed_and_epoch_and_not_from_the_hash_seed(plan: BatchPlan) -> None:
    code = (
        "import json; from tests.common.data.test_samplers import *\n"
        f"sampler = EpochBatchSampler(LENGTHS, plan={plan!r}, rank=1, world_size=2)\n"
        "sampler.set_position(4, 2)\n"
        "print(json.dumps(list(sampler)))"
    )
    children = [start(code, PYTHONHASHSEED=seed) for seed in ("1", "2")]
    orders = [json.loads(result_of(child)) for child in children]

    assert orders[0] == orders[1]
    assert len(orders[0]) > 2


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_each_epoch_has_another_order_and_as_many_batches(plan: BatchPlan) -> None:
    sampler = EpochBatchSampler(LENGTHS, plan=plan)
    epochs = []
    for epoch in range(4):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))

    assert {len(epoch) for epoch in epochs} == {len(sampler)}
    assert all([row for _, row in a[0]] != [row for _, row in b[0]] for a, b in itertools.combinations(epochs, 2))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_take_turns_in_the_same_batches(plan: BatchPlan, world_size: int) -> None:
    alone = list(EpochBatchSampler(LENGTHS, plan=plan))
    samplers = [EpochBatchSampler(LENGTHS, plan=plan, rank=rank, world_size=world_size) for rank in range(world_size)]
    ranks = [list(sampler) for sampler in samplers]

    assert len({len(batches) for batches in ranks}) == 1
    together = [batch for step in zip(*ranks, strict=True) for batch in step]
    assert together == alone[: len(together)]
    assert len(alone) - len(together) < world_size


def test_goes_on_where_it_is_told_and_keeps_the_length_of_the_full_epoch() -> None:
    sampler = EpochBatchSampler(LENGTHS, plan=PLANS["buckets"], rank=1, world_size=2)
    sampler.set_position(2)
    full, n_batches = list(sampler), len(sampler)

    sampler.set_position(2, 5)

    assert list(sampler) == full[5:]
    assert len(sampler) == n_batches == len(full)
    assert {epoch for batch in sampler for epoch, _ in batch} == {2}


def test_a_position_at_the_end_is_the_next_epochs_beginning() -> None:
    sampler = EpochBatchSampler(LENGTHS, plan=PLANS["plain"])
    sampler.set_position(3)
    expected = list(sampler)

    sampler.set_position(2, len(sampler))

    assert list(sampler) == expected
    assert (sampler.epoch, sampler.start) == (3, 0)


def test_iterating_changes_nothing_and_the_position_counts_when_it_begins() -> None:
    sampler = EpochBatchSampler(LENGTHS, plan=PLANS["plain"])
    first = iter(sampler)
    sampler.set_position(1)
    second, third = list(sampler), list(sampler)

    assert second == third
    assert {epoch for batch in first for epoch, _ in batch} == {0}


def test_rows_of_similar_length_share_a_batch() -> None:
    def padding(plan: BatchPlan) -> int:
        batches = plan.batches(LENGTHS, epoch=0)
        return sum(int(LENGTHS[batch].max()) * len(batch) for batch in batches) - int(LENGTHS.sum())

    assert padding(PLANS["buckets"]) < padding(PLANS["plain"]) / 2


@settings(deadline=None, max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=120),
    budget=st.integers(40, 200),
    multiple=st.sampled_from([1, 8]),
    epoch=st.integers(0, 3),
)
def test_no_batch_is_above_its_token_budget(lengths: list[int], budget: int, multiple: int, epoch: int) -> None:
    plan = BatchPlan(batch_size=4, token_budget=budget, pad_multiple=multiple)
    array = np.array(lengths)
    batches = plan.batches(array, epoch=epoch)

    padded = [-(-int(array[batch].max()) // multiple) * multiple * len(batch) for batch in batches]
    assert max(padded) <= budget
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert len(batches) == len(plan.batches(array, epoch=epoch + 1))


def test_a_row_above_the_token_budget_is_refused_with_the_numbers() -> None:
    plan = BatchPlan(batch_size=4, token_budget=16)

    with pytest.raises(DataError, match=r"token_budget: 16 tokens, and the longest row has 59 .* use at least 59"):
        EpochBatchSampler(LENGTHS, plan=plan)


@pytest.mark.parametrize(
    ("last_batch", "sizes"), [("keep", [4, 4, 1]), ("drop", [4, 4]), ("merge", [4, 5])], ids=["keep", "drop", "merge"]
)
def test_the_incomplete_batch_comes_last_and_is_kept_dropped_or_merged(last_batch: str, sizes: list[int]) -> None:
    sampler = EpochBatchSampler([1] * 9, plan=BatchPlan(batch_size=4, last_batch=last_batch))

    assert [len(batch) for batch in sampler] == sizes
    assert sampler.smallest_batch == min(sizes)


def test_knows_the_smallest_batch_that_any_rank_will_see() -> None:
    # 17 rows are batches of 4 4 4 4 1; on two ranks the fifth is left out.
    plan = BatchPlan(batch_size=4)

    assert EpochBatchSampler([1] * 17, plan=plan, world_size=2).smallest_batch == 4
    assert EpochBatchSampler([1] * 17, plan=plan).smallest_batch == 1


def test_an_empty_training_set_is_an_error() -> None:
    with pytest.raises(DataError, match=r"training set is empty \(0 rows"):
        EpochBatchSampler([], plan=PLANS["plain"])


def test_a_batch_larger_than_the_data_with_drop_is_an_error_with_the_numbers() -> None:
    plan = BatchPlan(batch_size=8, last_batch="drop")

    with pytest.raises(DataError, match=r"3 training rows in batches of 8 on 1 ranks .*drop_last=True.* are 0 batches"):
        EpochBatchSampler([1] * 3, plan=plan)


def test_fewer_rows_than_ranks_is_an_error_with_the_numbers() -> None:
    with pytest.raises(DataError, match=r"1 training rows in batches of 8 on 2 ranks .* are 1 batches"):
        EpochBatchSampler([1], plan=BatchPlan(batch_size=8), world_size=2)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("with_lengths", [False, True])
def test_evaluates_every_row_exactly_once_on_any_number_of_ranks(world_size: int, with_lengths: bool) -> None:
    n_rows = 7
    samplers = [
        EvalBatchSampler(
            n_rows,
            batch_size=2,
            lengths=LENGTHS[:n_rows] if with_lengths else None,
            rank=rank,
            world_size=world_size,
        )
        for rank in range(world_size)
    ]

    assert sorted(row for sampler in samplers for row in rows_of(sampler)) == list(range(n_rows))
    assert all(len(sampler) == len(list(sampler)) for sampler in samplers)
    counts = [len(rows_of(sampler)) for sampler in samplers]
    assert max(counts) - min(counts) <= 1
