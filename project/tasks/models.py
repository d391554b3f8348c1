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
    from transformers import AutoModelForSequenceClassification

    if n_labels < 2:
        raise ValueError(f"n_labels: {n_labels} leaves nothing to tell apart; use 2 or more")
    sizes = {"vocab_size": vocab_size, "pad_token_id": pad_token_id, "num_labels": n_labels}
    return _untrained(AutoModelForSequenceClassification, model_type, sizes | config)


def causal_from_config(*, model_type: str, vocab_size: int, pad_token_id: int, **config: Any) -> PreTrainedModel:
    """Returns an untrained model that predicts each next token: `gpt2`, `llama`, ...; else as `classifier_from_config`.

    `forward(input_ids, attention_mask, labels=None)`, integers `[b t]`, returns `.logits` `[b t v]` and `.loss`, the
    mean over the tokens that are predicted.

    b batch, t time in tokens, v vocabulary.
    """
    from transformers import AutoModelForCausalLM

    sizes = {"vocab_size": vocab_size, "pad_token_id": pad_token_id}
    return _with_causal_loss(_untrained(AutoModelForCausalLM, model_type, sizes | config))


def masked_from_config(*, model_type: str, vocab_size: int, pad_token_id: int, **config: Any) -> PreTrainedModel:
    """Returns an untrained model that says what hidden tokens were: `bert`, ...; else as `causal_from_config`."""
    from transformers import AutoModelForMaskedLM

    sizes = {"vocab_size": vocab_size, "pad_token_id": pad_token_id}
    return _untrained(AutoModelForMaskedLM, model_type, sizes | config)


def classifier_from_pretrained(*, name_or_path: str, n_labels: int, **config: Any) -> PreTrainedModel:
    """Returns a classifier with the weights of a folder or of the hub; a head that is not there is drawn anew.

    Code that comes with the weights is never run.

    Args:
        name_or_path: a folder of `save_pretrained`, or a name at the hub.
        config: fields of the model's configuration that shall differ.

    Raises:
        ValueError: there is no such model, or a field that its configuration does not have.
    """
    from transformers import AutoModelForSequenceClassification

    if n_labels < 2:
        raise ValueError(f"n_labels: {n_labels} leaves nothing to tell apart; use 2 or more")
    # A head for another number of classes is drawn anew, too.
    options = {"num_labels": n_labels, "ignore_mismatched_sizes": True}
    return _pretrained(AutoModelForSequenceClassification, name_or_path, config, options)


def causal_from_pretrained(*, name_or_path: str, **config: Any) -> PreTrainedModel:
    """Returns a model that predicts each next token, with weights; arguments as of `classifier_from_pretrained`."""
    from transformers import AutoModelForCausalLM

    return _with_causal_loss(_pretrained(AutoModelForCausalLM, name_or_path, config, {}))


def masked_from_pretrained(*, name_or_path: str, **config: Any) -> PreTrainedModel:
    """Returns a model that says what hidden tokens were, with weights; as `classifier_from_pretrained`."""
    from transformers import AutoModelForMaskedLM

    return _pretrained(AutoModelForMaskedLM, name_or_path, config, {})


def _with_causal_loss(model: Any) -> PreTrainedModel:
    model.loss_type = "ForCausalLM"  # transformers guesses it from the class's name, and says so where it cannot
    causal: PreTrainedModel = model
    return causal


def _untrained(auto_class: Any, model_type: str, fields: dict[str, Any]) -> PreTrainedModel:
    from transformers import AutoConfig

    if not 0 <= fields["pad_token_id"] < fields["vocab_size"]:
        raise ValueError(f"pad_token_id: {fields['pad_token_id']} is not in a vocabulary of {fields['vocab_size']}")
    try:
        default = AutoConfig.for_model(model_type)
    except ValueError as error:
        raise ValueError(f"model_type: transformers knows no '{model_type}'; for example bert, modernbert") from error
    _refuse_unknown(default, fields, kind=model_type)
    # The defaults are ids of the published vocabulary; a small one does not reach so far.
    unreached = [
        name
        for name, value in default.to_dict().items()
        if name.endswith("_token_id") and isinstance(value, int) and value >= fields["vocab_size"]
    ]
    config = AutoConfig.for_model(model_type, **dict.fromkeys(unreached) | fields)
    try:
        return auto_class.from_config(config)
    except ValueError as error:
        if "Unrecognized configuration class" not in str(error):
            raise
        raise ValueError(f"model_type: '{model_type}' has no {auto_class.__name__}; choose another one") from error


def _pretrained(auto_class: Any, name_or_path: str, fields: dict[str, Any], options: dict[str, Any]) -> PreTrainedModel:
    from transformers import AutoConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(name_or_path, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"name_or_path: no model at '{name_or_path}' ({str(error).splitlines()[0]}); "
            "give a folder with config.json and model.safetensors, or a name at the hub"
        ) from error
    _refuse_unknown(config, fields, kind=str(config.model_type))
    try:
        return auto_class.from_pretrained(name_or_path, trust_remote_code=False, **options, **fields)
    except OSError as error:
        raise ValueError(f"name_or_path: no weights at '{name_or_path}' ({str(error).splitlines()[0]})") from error


def _refuse_unknown(config: Any, fields: dict[str, Any], *, kind: str) -> None:
    """transformers keeps unknown fields without a word; a misspelt one would be a setting silently off."""
    known = {name for name in config.to_dict() if not name.startswith("_")}
    known |= set(config.attribute_map) | {"attn_implementation", "num_labels"}
    if unknown := sorted(set(fields) - known):
        raise ValueError(f"config: {kind} has no field {', '.join(unknown)}; fields: {', '.join(sorted(known))}")
