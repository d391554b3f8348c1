"""Trains small tokenizers, on the texts of the training split and on nothing else; the same texts, the same pieces."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

# Their ids are their places here, in every tokenizer of this module: padding is 0.
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_MOST_PIECES = 1_000_000
_WORD_START = "▁"


def train_wordpiece(
    texts: Iterable[str], *, vocab_size: int = 2000, min_frequency: int = 2, lowercase: bool = True
) -> PreTrainedTokenizerFast:
    """Returns a tokenizer as BERT's: words are cut from the left into the longest pieces known.

    Args:
        texts: iterated over once.
        vocab_size: pieces at most, special tokens included.
        min_frequency: pairs of pieces seen less often than this are not joined.
        lowercase: whether case is dropped, when training and when tokenising.

    Raises:
        ValueError: no texts, or a vocabulary too small for the special tokens.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    # The library's own WordPiece trainer breaks ties by hash order: its vocabulary differs from run to run.
    words = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Metaspace(_WORD_START)])
    pairs = _train_pairs(texts, split=words, vocab_size=vocab_size, min_frequency=min_frequency, lowercase=lowercase)
    pieces = pairs.get_vocab()
    vocab = _wordpieces(sorted(pieces, key=pieces.__getitem__), vocab_size=vocab_size)
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return _finish(tokenizer, lowercase=lowercase)


def train_bpe(
    texts: Iterable[str], *, vocab_size: int = 2000, min_frequency: int = 2, lowercase: bool = False
) -> PreTrainedTokenizerFast:
    """Returns a byte-level byte-pair tokenizer as GPT-2's: it knows every text and gives it back unchanged.

    Args:
        vocab_size: pieces at most, special tokens and the 256 bytes included.

    Other arguments and errors as of `train_wordpiece`.
    """
    from tokenizers import decoders, pre_tokenizers

    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = _train_pairs(
        texts,
        split=split,
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        lowercase=lowercase,
        alphabet=split.alphabet(),
    )
    tokenizer.decoder = decoders.ByteLevel()
    return _finish(tokenizer, lowercase=lowercase)


def _train_pairs(
    texts: Iterable[str], *, split: Any, vocab_size: int, min_frequency: int, lowercase: bool, alphabet: Any = ()
) -> Tokenizer:
    """Returns a tokenizer that joins frequent pairs of pieces (Sennrich et al. 2016) within what `split` leaves."""
    from tokenizers import Tokenizer, models, trainers

    smallest = len(SPECIAL_TOKENS) + len(alphabet)
    if vocab_size <= smallest:
        raise ValueError(f"vocab_size: {vocab_size} leaves no room; use more than {smallest}, best some thousands")
    if vocab_size > _MOST_PIECES:
        raise ValueError(f"vocab_size: {vocab_size} is more than fits into memory; use at most {_MOST_PIECES}")
    if min_frequency < 0:
        raise ValueError(f"min_frequency: {min_frequency} is no number of times; use 0 or more")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        initial_alphabet=sorted(alphabet),
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = _normalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = split
    tokenizer.train_from_iterator(_checked(texts), trainer)
    return tokenizer


def _wordpieces(pieces: list[str], *, vocab_size: int) -> dict[str, int]:
    """Returns ids of the pieces in WordPiece's spelling: those that go on with a word begin with `##`.

    Single characters come in both forms, so that any word of known characters can be cut.
    """
    plain = [piece for piece in pieces if piece not in (*SPECIAL_TOKENS, _WORD_START)]
    characters = [piece for piece in plain if len(piece) == 1]
    longer = [piece for piece in plain if len(piece) > 1]
    spelt = [p.removeprefix(_WORD_START) if p.startswith(_WORD_START) else f"##{p}" for p in longer]
    both = [form for character in characters for form in (character, f"##{character}")]
    unique = dict.fromkeys([*SPECIAL_TOKENS, *both, *spelt])
    return {piece: number for number, piece in enumerate(list(unique)[:vocab_size])}


def _normalizer(*, lowercase: bool) -> Any:
    from tokenizers import normalizers

    cases = [normalizers.Lowercase()] if lowercase else []
    return normalizers.Sequence([normalizers.NFC(), *cases])


def _finish(tokenizer: Tokenizer, *, lowercase: bool) -> PreTrainedTokenizerFast:
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    tokenizer.normalizer = _normalizer(lowercase=lowercase)
    # The ends also keep an empty text from having no token at all, the mean of which is not a number.
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in ("[CLS]", "[SEP]")],
    )
    names = {f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **names)


def _checked(texts: Iterable[str]) -> Iterable[str]:
    if isinstance(texts, str):
        raise ValueError("texts: this is one string; give a list of strings")
    iterator = iter(texts)
    first = next(iterator, None)
    if first is None:
        raise ValueError("texts: there are none to train a tokenizer on")
    return chain([first], iterator)
