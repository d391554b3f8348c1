"""Models, built from plain numbers and names; torch and transformers are imported when one is built, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

HEAD_WIDTH = 32


def text_classifier(
    *,
    vocab_size: int,
    n_labels: int,
    pad_token_id: int,
    width: int = 64,
    n_layers: int = 2,
    dropout: float = 0.1,
) -> PreTrainedModel:
    """Returns a small untrained ModernBERT (Warner et al. 2024) that classifies the mean of a text's tokens.

    On short texts the mean learns faster than a classifier on `[CLS]`. Positions are rotary, so there is no table to
    outgrow; every layer attends to the whole text.

    `forward(input_ids, attention_mask, labels=None)`, integers `[b t]`, `[b t]` and `[b]`, returns `.logits` `[b k]`
    and `.loss`, the mean cross-entropy or None.

    b batch, t time in tokens, k labels, d width.

    Args:
        pad_token_id: its embedding stays zero.
        width: d, a multiple of 32, which is the width of one attention head.
        dropout: after the embedding, in the feed-forward layers and before the classifier.

    Raises:
        ValueError: the width is not a multiple of 32, or a number is out of range.
    """
    if n_layers < 1:
        raise ValueError(f"n_layers: {n_layers} is no model; use 1 or more")
    if width < HEAD_WIDTH or width % HEAD_WIDTH:
        raise ValueError(f"width: {width} is not a multiple of {HEAD_WIDTH}; use {HEAD_WIDTH}, 64, 96, 128, ...")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: {dropout} is no share of what may be dropped; use 0 or more, and less than 1")
    return classifier_from_config(
        model_type="modernbert",
        vocab_size=vocab_size,
        n_labels=n_labels,
        pad_token_id=pad_token_id,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=n_layers,
        num_attention_heads=width // HEAD_WIDTH,
        layer_types=["full_attention"] * n_layers,
        embedding_dropout=dropout,
        mlp_dropout=dropout,
        classifier_dropout=dropout,
        classifier_pooling="mean",
        # The defaults are ids of the published vocabulary; a small one does not reach so far.
        **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
    )


def classifier_from_config(
    *, model_type: str, vocab_size: int, n_labels: int, pad_token_id: int, **config: Any
) -> PreTrainedModel:
    """Returns an untrained sequence classifier of any architecture of transformers.

    Args:
        model_type: as transformers spells it: `bert`, `distilbert`, `modernbert`, ...
        config: more fields of this architecture's configuration class, under its own names.

    Raises:
        ValueError: an architecture or a field that transformers does not know, or a number that is out of range.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification

    if n_labels < 2:
        raise ValueError(f"n_labels: {n_labels} leaves nothing to tell apart; use 2 or more")
    if not 0 <= pad_token_id < vocab_size:
        raise ValueError(f"pad_token_id: {pad_token_id} is not in a vocabulary of {vocab_size}")
    # transformers keeps unknown fields without a word; a misspelt one would be a setting silently off.
    known = _config_fields(model_type)
    unknown = sorted(set(config) - known)
    if unknown:
        raise ValueError(f"config: {model_type} has no field {', '.join(unknown)}; fields: {', '.join(sorted(known))}")
    full = AutoConfig.for_model(
        model_type, vocab_size=vocab_size, num_labels=n_labels, pad_token_id=pad_token_id, **config
    )
    return AutoModelForSequenceClassification.from_config(full)


def _config_fields(model_type: str) -> set[str]:
    from transformers import AutoConfig

    try:
        default = AutoConfig.for_model(model_type)
    except ValueError as error:
        raise ValueError(f"model_type: transformers knows no '{model_type}'; for example bert, modernbert") from error
    fields = {name for name in default.to_dict() if not name.startswith("_")}
    return fields | set(default.attribute_map) | {"attn_implementation"}
