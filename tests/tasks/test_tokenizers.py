import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from project.tasks.language_id import load_messages
from project.tasks.tokenizers import SPECIAL_TOKENS, train_bpe, train_wordpiece

Train = Callable[..., PreTrainedTokenizerFast]
either = pytest.mark.parametrize("train", [train_wordpiece, train_bpe])
PRINT_VOCABULARY = """
from project.tasks import tokenizers
from project.tasks.language_id import load_messages
texts = [row["text"] for row in load_messages(languages=["de", "pl"])]
for train in (tokenizers.train_wordpiece, tokenizers.train_bpe):
    print(train(texts, vocab_size=600).backend_tokenizer.to_str())
"""


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [row["text"] for row in load_messages(languages=["de", "pl"])]


def test_every_process_trains_the_same_vocabulary() -> None:
    """The library's WordPiece trainer gave other ids, and other pieces, in every run."""
    printed = {
        subprocess.run(
            [sys.executable, "-c", PRINT_VOCABULARY],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }

    assert len(printed) == 1


@either
def test_the_order_of_the_texts_does_not_matter(train: Train, texts: list[str]) -> None:
    assert train(texts).get_vocab() == train(reversed(texts)).get_vocab()


@either
def test_the_vocabulary_has_the_size_asked_for_and_ids_without_gaps(train: Train, texts: list[str]) -> None:
    tokenizer = train(texts, vocab_size=700)

    assert len(tokenizer) == 700
    assert sorted(tokenizer.get_vocab().values()) == list(range(700))


@either
def test_special_tokens_have_fixed_ids_and_roles(train: Train, texts: list[str]) -> None:
    tokenizer = train(texts)

    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3, 4]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.mask_token_id) == (0, 1, 4)
    assert (tokenizer.cls_token_id, tokenizer.sep_token_id) == (2, 3)


@either
def test_a_text_stands_between_cls_and_sep_also_when_cut_or_empty(train: Train, texts: list[str]) -> None:
    ids = train(texts)([texts[0] * 9, "Ja", ""], truncation=True, max_length=8)["input_ids"]

    assert all(row[0] == 2 and row[-1] == 3 for row in ids)
    assert [len(ids[0]), ids[2]] == [8, [2, 3]]


@either
def test_saved_and_loaded_it_gives_the_same_ids(train: Train, texts: list[str], tmp_path: Path) -> None:
    tokenizer = train(texts)
    tokenizer.save_pretrained(tmp_path)

    loaded = AutoTokenizer.from_pretrained(tmp_path)

    assert loaded(texts)["input_ids"] == tokenizer(texts)["input_ids"]
    assert loaded.pad_token_id == tokenizer.pad_token_id


def test_wordpiece_knows_every_character_it_was_trained_on(texts: list[str]) -> None:
    tokenizer = train_wordpiece(texts, vocab_size=600)

    assert not [text for text in texts if tokenizer.unk_token_id in tokenizer(text)["input_ids"]]


def test_wordpiece_drops_case_unless_told_otherwise(texts: list[str]) -> None:
    assert train_wordpiece(texts).tokenize("BITTE") == train_wordpiece(texts).tokenize("bitte")
    assert train_wordpiece(texts, lowercase=False).tokenize("BITTE") != ["bitte"]


def test_wordpiece_marks_the_pieces_that_go_on_with_a_word(texts: list[str]) -> None:
    pieces = train_wordpiece(texts, vocab_size=400).tokenize("Passwort ändern")

    starts = [index for index, piece in enumerate(pieces) if not piece.startswith("##")]
    assert len(starts) == 2
    assert "".join(piece.removeprefix("##") for piece in pieces) == "passwortändern"


@pytest.mark.parametrize("text", ["Größe: 5 %", "日本語", "  two  spaces\n", "<b>%(name)s</b>"])
def test_bpe_gives_any_text_back_unchanged(text: str, texts: list[str]) -> None:
    tokenizer = train_bpe(texts)

    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


@either
def test_no_texts_are_refused(train: Train) -> None:
    with pytest.raises(ValueError, match="texts: there are none to train a tokenizer on"):
        train([])


@either
def test_one_string_in_place_of_a_list_is_refused(train: Train) -> None:
    with pytest.raises(ValueError, match="texts: this is one string; give a list of strings"):
        train("abc")


@pytest.mark.parametrize(("train", "smallest"), [(train_wordpiece, 5), (train_bpe, 261)])
def test_a_vocabulary_without_room_is_refused(train: Train, smallest: int) -> None:
    with pytest.raises(ValueError, match=f"vocab_size: {smallest} leaves no room; use more than {smallest}"):
        train(["some text"], vocab_size=smallest)
