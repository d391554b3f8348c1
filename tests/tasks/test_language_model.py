"""CPython's documents, without a download and without a text in two splits; masks that follow from the row."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from project.tasks import language_model
from project.tasks.masking import IGNORED, mask_tokens
from project.tasks.models import causal_from_config
from project.tasks.splits import normalise, split_by_group
from project.tasks.tokenizers import train_bpe

LIBRARY = {
    "json/__init__.py": '"""Reads and writes JSON."""\ndef load():\n    "Returns what it holds as JSON."\n',
    "_pydecimal.py": '"""The decimal type, written in Python alone here."""\n',
    "ast.py": '"""Reads, and writes JSON!"""\nclass Node:\n    """A node of a tree that a text is."""\n',
    "test/test_json.py": '"""This text is a test, not a document of the library."""\n',
    "notpython.py": '"""This module is not one of the standard library."""\n',
}


def write_library(folder: Path) -> str:
    for name, text in LIBRARY.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def test_documents_are_topics_and_docstrings_each_once(tmp_path: Path) -> None:
    rows = language_model.load_documents(min_chars=20, stdlib=write_library(tmp_path))

    found = [(row["group"], row["text"].split(maxsplit=2)[-1]) for row in rows if row["group"].startswith("module")]
    assert found == [
        ("module decimal", "type, written in Python alone here."),
        ("module ast", "writes JSON!"),
        ("module ast", "of a tree that a text is."),
        ("module json", "it holds as JSON."),
    ]
    assert sum(row["group"].startswith("topic ") for row in rows) > 50


def test_a_library_without_sources_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"stdlib: there are no Python files with documents in "):
        language_model.load_documents(stdlib=str(tmp_path))


def test_no_text_of_the_real_library_is_in_two_splits() -> None:
    rows = language_model.load_documents()

    splits = split_by_group(rows, fractions={"train": 0.8, "val": 0.1, "test": 0.1}, seed=0)
    keys = {split: {normalise(row["text"]) for row in part} for split, part in splits.items()}
    groups = {split: {row["group"] for row in part} for split, part in splits.items()}
    assert sum(len(row["text"]) for row in rows) > 1_500_000
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        assert not keys[one] & keys[other]
        assert not groups[one] & groups[other]


def test_a_unigram_model_is_as_sure_as_tokens_are_frequent() -> None:
    splits = {"train": [{"input_ids": [9, 1, 1, 1]}, {"input_ids": [9, 2]}], "test": [{"input_ids": [9, 1, 3]}]}

    metrics = language_model.unigram(splits=splits)

    # Counts 3 and 1, each token once more, and the new one: 4, 2 and 1 of 7.
    loss = -(math.log(4 / 7) + math.log(1 / 7)) / 2
    assert metrics == pytest.approx({"unigram/test/loss": loss, "unigram/test/perplexity": math.exp(loss)})


def test_the_baseline_alone_packs_and_counts_as_the_training_does() -> None:
    rows = [{"text": f"a text of its own, {letter * 5}", "group": letter} for letter in "abcdefghijkl"]
    told: list[int] = []

    metrics = language_model.run_unigram(
        rows=rows,
        fractions={"train": 0.7, "test": 0.3},
        tokenizer=lambda texts: train_bpe(texts, vocab_size=270, min_frequency=1),
        max_length=8,
        report=lambda step, new: told.append(step),
    )

    assert metrics["unigram/test/perplexity"] == pytest.approx(math.exp(metrics["unigram/test/loss"]))
    assert told == [1]


def test_a_sample_goes_on_with_the_prompt_and_is_the_same_each_time(tmp_path: Path) -> None:
    tokenizer = train_bpe(["some words to learn from"], vocab_size=270, min_frequency=1)
    torch.manual_seed(1)
    model = causal_from_config(
        model_type="gpt2", vocab_size=len(tokenizer), pad_token_id=0, n_embd=8, n_layer=1, n_head=1, n_positions=32
    )
    before = torch.get_rng_state()

    texts = [
        language_model.write_sample(model=model, tokenizer=tokenizer, folder=tmp_path, prompt="some", max_new_tokens=9)
        for _ in range(2)
    ]

    assert texts[0] == texts[1]
    assert texts[0].startswith("some")
    assert (tmp_path / "sample.txt").read_text() == texts[1] + "\n"
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_that_generates_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model: Linear does not generate text; set task\.at_end=null"):
        language_model.write_sample(model=torch.nn.Linear(1, 1), tokenizer=None, folder=tmp_path)


def masked(seed: int, ids: list[int], **changes: Any) -> dict[str, Any]:
    options = {"vocab_size": 100, "mask_token_id": 4, "special_token_ids": [0, 2, 3, 4], "probability": 0.5}
    return mask_tokens({"input_ids": np.array(ids), "row": 7}, np.random.default_rng(seed), **options | changes)


def test_masks_follow_from_the_generator_and_hide_no_special_token() -> None:
    ids = [50, 2, *range(10, 60), 3]

    row = masked(1, ids)

    hidden = row["labels"] != IGNORED
    assert row["input_ids"].tolist() == masked(1, ids)["input_ids"].tolist() != masked(2, ids)["input_ids"].tolist()
    assert row["labels"][hidden].tolist() == np.array(ids)[hidden].tolist()
    assert row["input_ids"][~hidden].tolist() == np.array(ids)[~hidden].tolist()
    assert not hidden[[0, 1, -1]].any()
    assert 10 < hidden.sum() < 40
    assert 0.5 < (row["input_ids"][hidden] == 4).mean() < 1
    assert row["row"] == 7


def test_every_row_has_something_to_predict() -> None:
    labels = [masked(seed, [2, 11, 12, 3], probability=0.01)["labels"] for seed in range(20)]

    assert all((found != IGNORED).sum() == 1 for found in labels)


def test_a_share_that_hides_nothing_or_all_is_refused() -> None:
    for probability in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"probability: .* is no share of tokens to hide"):
            masked(1, [1, 2], probability=probability)


def test_a_sample_is_no_longer_than_what_the_model_reads(tmp_path: Path) -> None:
    tokenizer = train_bpe(["some words to learn from"], vocab_size=270, min_frequency=1)
    model = causal_from_config(
        model_type="gpt2", vocab_size=len(tokenizer), pad_token_id=0, n_embd=8, n_layer=1, n_head=1, n_positions=8
    )

    text = language_model.write_sample(
        model=model, tokenizer=tokenizer, folder=tmp_path, prompt="abcdefghijklmnop", max_new_tokens=3
    )

    assert text.startswith("lmnop")
