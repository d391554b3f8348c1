import hashlib
import json
import logging
import os
import random
import subprocess
import sys

import pytest

from project.tasks.splits import normalise, split_by_group

FRACTIONS = {"train": 0.8, "val": 0.1, "test": 0.1}


def _rows(n_groups: int, *, per_group: int = 3) -> list[dict[str, str]]:
    names = [f"{chr(97 + i // 676)}{chr(97 + i // 26 % 26)}{chr(97 + i % 26)}" for i in range(n_groups)]
    return [{"text": f"{name} {'xyz'[j]}", "group": name} for name in names for j in range(per_group)]


def _split_of(rows: list[dict[str, str]], *, seed: int = 0) -> dict[str, str]:
    splits = split_by_group(rows, fractions=FRACTIONS, seed=seed)
    return {row["text"]: split for split, found in splits.items() for row in found}


def test_every_row_is_in_exactly_one_split() -> None:
    rows = _rows(200)

    splits = split_by_group(rows, fractions=FRACTIONS, seed=0)

    assert sorted(row["text"] for found in splits.values() for row in found) == sorted(row["text"] for row in rows)


def test_no_group_is_in_two_splits() -> None:
    splits = split_by_group(_rows(200), fractions=FRACTIONS, seed=0)

    groups = [{row["group"] for row in found} for found in splits.values()]

    assert sum(map(len, groups)) == len(set.union(*groups)) == 200


def test_groups_that_share_a_text_stay_together_even_in_a_chain() -> None:
    chain = [{"text": f"link {'abcdef'[i + j]}", "group": f"chain {i}"} for i in range(5) for j in (0, 1)]
    rows = _rows(100) + chain

    for seed in range(20):
        split_of = _split_of(rows, seed=seed)
        assert len({split_of[row["text"]] for row in chain}) == 1


def test_texts_that_differ_trivially_count_as_the_same() -> None:
    pair = [{"text": "Delete  %(name)s?", "group": "one"}, {"text": "delete <b>{name}</b>", "group": "two"}]
    rows = _rows(100) + pair

    for seed in range(20):
        split_of = _split_of(rows, seed=seed)
        assert split_of[pair[0]["text"]] == split_of[pair[1]["text"]]


def test_the_order_of_the_rows_does_not_matter() -> None:
    rows = [*_rows(200), {"text": "aaa x", "group": "linked"}]
    shuffled = random.Random(1).sample(rows, len(rows))

    assert _split_of(rows) == _split_of(shuffled)


def test_rows_keep_their_order_within_a_split() -> None:
    rows = _rows(50)

    train = split_by_group(rows, fractions=FRACTIONS, seed=0)["train"]

    assert train == [row for row in rows if row in train]


def test_the_hash_seed_of_the_process_does_not_matter() -> None:
    program = (
        "import hashlib, json; from tests.tasks.test_splits import _rows, _split_of;"
        "print(hashlib.sha256(json.dumps(_split_of(_rows(200))).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }

    assert digests == {hashlib.sha256(json.dumps(_split_of(_rows(200))).encode()).hexdigest()}


def test_another_seed_gives_another_split() -> None:
    rows = _rows(200)

    assert _split_of(rows, seed=0) != _split_of(rows, seed=1)


@pytest.mark.parametrize("seed", range(5))
def test_the_shares_are_those_asked_for(seed: int) -> None:
    splits = split_by_group(_rows(300), fractions=FRACTIONS, seed=seed)

    assert {split: len(found) / 900 for split, found in splits.items()} == pytest.approx(FRACTIONS, abs=0.01)


@pytest.mark.parametrize(
    ("fractions", "message"),
    [
        ({}, "fractions: empty"),
        ({"train": 0.8, "test": 0.1}, r"fractions: .* add up to 0\.9; they must add up to 1"),
        ({"train": 1.0, "test": 0.0}, r"fractions\.test: 0\.0 is not a share"),
        ({"train": 1.5, "test": -0.5}, r"fractions\.train: 1\.5 is not a share"),
    ],
)
def test_impossible_shares_are_refused(fractions: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_by_group(_rows(10), fractions=fractions, seed=0)


def test_a_split_that_would_be_empty_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no rows left for val, test; 3 rows form 1 groups"):
        split_by_group(_rows(1), fractions=FRACTIONS, seed=0)


def test_no_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="rows: there are none to split"):
        split_by_group([], fractions=FRACTIONS, seed=0)


def test_a_row_without_a_group_is_named() -> None:
    rows = [*_rows(1), {"text": "a", "label": "de"}]

    with pytest.raises(ValueError, match=r"rows\[3\]: no string field 'group'; fields: label, text"):
        split_by_group(rows, fractions=FRACTIONS, seed=0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Select %s to change", "select to change"),
        ("%(verbose_name)s with %(field_labels)s  already exists.", "with already exists"),
        ("Ensure <b>{count:d}</b>&nbsp;items!", "ensure items"),
        ("Größe: 12%", "grösse"),
        ("%d", "%d"),
        ("  ?! ", "?!"),
    ],
)
def test_normalising_keeps_words_only_unless_there_are_none(text: str, expected: str) -> None:
    assert normalise(text) == expected


def test_a_share_that_is_no_number_is_refused() -> None:
    rows = [{"text": "a", "label": "x", "group": "a"}]

    with pytest.raises(ValueError, match=r"fractions\.train: .most. is not a share; use a number"):
        split_by_group(rows, fractions={"train": "most"}, seed=0)  # type: ignore[dict-item]


def test_rows_that_differ_only_in_numbers_are_said_to_stay_together(caplog: pytest.LogCaptureFixture) -> None:
    """People wondered why two thousand rows made so few groups."""
    caplog.set_level(logging.INFO)
    rows = [{"text": f"{word} {n}", "group": f"{word} {n}"} for word in ("one", "two", "six", "ten") for n in range(3)]

    split_by_group(rows, fractions={"train": 0.5, "test": 0.5}, seed=0)

    assert "12 rows form 4 groups" in caplog.text
    assert "texts that differ only in case, numbers," in caplog.text
