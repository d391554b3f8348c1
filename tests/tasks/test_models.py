import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, ModernBertForSequenceClassification

from project.tasks import models
from project.tasks.models import classifier_from_config, text_classifier

# A project has those of its own task.
LIGHT = "models tokenizers baselines splits packages language_id language_model finetune digits".split()  # noqa: SIM905
SIZES = {"vocab_size": 50, "n_labels": 3, "pad_token_id": 0}


def _batch() -> dict[str, torch.Tensor]:
    ids = torch.tensor([[2, 7, 8, 9, 3], [2, 7, 3, 0, 0]])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.mark.parametrize("module", [name for name in LIGHT if Path(models.__file__).with_name(f"{name}.py").is_file()])
def test_importing_a_task_module_imports_nothing_heavy(module: str) -> None:
    program = f"import sys; import project.tasks.{module}; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert not {"torch", "transformers", "tokenizers", "sklearn", "numpy", "django"} & set(loaded)


def test_the_default_is_a_model_of_transformers_built_from_a_configuration() -> None:
    model = text_classifier(**SIZES, width=64, n_layers=3)

    assert isinstance(model, ModernBertForSequenceClassification)
    assert (model.config.hidden_size, model.config.num_hidden_layers, model.config.num_labels) == (64, 3, 3)


def test_gives_one_logit_per_label_and_no_loss_without_labels() -> None:
    output = text_classifier(**SIZES)(**_batch())

    assert output.logits.shape == (2, 3)
    assert output.loss is None


def test_the_loss_is_the_mean_cross_entropy() -> None:
    labels = torch.tensor([0, 2])

    output = text_classifier(**SIZES)(**_batch(), labels=labels)

    torch.testing.assert_close(output.loss, torch.nn.functional.cross_entropy(output.logits, labels))


def test_padding_does_not_change_the_logits() -> None:
    model = text_classifier(**SIZES).eval()
    short = torch.tensor([[2, 7, 3]])

    padded = model(**_batch()).logits[1]
    alone = model(input_ids=short, attention_mask=torch.ones_like(short)).logits[0]

    torch.testing.assert_close(padded, alone)


def test_every_token_reaches_every_other() -> None:
    model = text_classifier(**SIZES, n_layers=1, dropout=0.0).eval()
    ids = torch.full((1, 300), 7)

    hidden = model.model(input_ids=ids).last_hidden_state[0, -1]
    ids[0, 0] = 8
    changed = model.model(input_ids=ids).last_hidden_state[0, -1]

    assert not torch.equal(hidden, changed)


def test_the_seed_of_torch_decides_the_weights() -> None:
    def first_weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return next(text_classifier(**SIZES).parameters())

    assert torch.equal(first_weights(1), first_weights(1))
    assert not torch.equal(first_weights(1), first_weights(2))


def test_learns_to_tell_two_tokens_apart() -> None:
    torch.manual_seed(0)
    model = text_classifier(**SIZES, width=32, n_layers=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    labels = torch.tensor([0, 1] * 8)
    ids = torch.stack([torch.tensor([2, 7 + label, 20 + row, 3]) for row, label in enumerate(labels.tolist())])

    for _ in range(20):
        optimizer.zero_grad()
        model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss.backward()
        optimizer.step()

    model.eval()
    assert torch.equal(model(input_ids=ids).logits.argmax(-1), labels)


def test_saved_it_is_loaded_by_transformers_alone(tmp_path: Path) -> None:
    model = text_classifier(**SIZES).eval()
    model.save_pretrained(tmp_path)

    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)

    torch.testing.assert_close(loaded(**_batch()).logits, model(**_batch()).logits)


@pytest.mark.parametrize("width", [0, 31, 100])
def test_a_width_that_no_number_of_heads_fits_is_refused(width: int) -> None:
    with pytest.raises(ValueError, match=f"width: {width} is not a multiple of 32; use 32, 64, 96, 128"):
        text_classifier(**SIZES, width=width)


def test_builds_another_architecture_by_its_name() -> None:
    model = classifier_from_config(
        model_type="bert", **SIZES, hidden_size=32, num_hidden_layers=1, num_attention_heads=1, intermediate_size=32
    )

    assert model.config.model_type == "bert"
    assert model(**_batch()).logits.shape == (2, 3)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"hiden_size": 32}, "config: bert has no field hiden_size; fields: .*hidden_size"),
        ({"model_type": "bret"}, "model_type: transformers knows no 'bret'; for example bert"),
        ({"n_labels": 1}, "n_labels: 1 leaves nothing to tell apart; use 2 or more"),
        ({"pad_token_id": 50}, "pad_token_id: 50 is not in a vocabulary of 50"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier_from_config(**{"model_type": "bert", **SIZES, **changed})


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="n_layers: 0 is no model; use 1 or more"):
        text_classifier(vocab_size=10, n_labels=2, pad_token_id=0, n_layers=0)


BERT = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
TOKENS = {"vocab_size": 50, "pad_token_id": 0}


def test_weights_of_a_folder_are_taken_by_each_kind_of_model(tmp_path: Path) -> None:
    models.masked_from_config(model_type="bert", **TOKENS, **BERT).save_pretrained(tmp_path / "bert")
    models.causal_from_config(model_type="llama", **TOKENS, **BERT).save_pretrained(tmp_path / "llama")

    classifier = models.classifier_from_pretrained(name_or_path=str(tmp_path / "bert"), n_labels=3)
    masked = models.masked_from_pretrained(name_or_path=str(tmp_path / "bert"), hidden_dropout_prob=0.3)
    causal = models.causal_from_pretrained(name_or_path=str(tmp_path / "llama"))

    assert classifier(**_batch()).logits.shape == (2, 3)
    assert torch.equal(classifier.bert.embeddings.word_embeddings.weight, masked.bert.embeddings.word_embeddings.weight)
    assert masked.config.hidden_dropout_prob == 0.3
    labels = _batch()["input_ids"]
    logits = causal(**_batch()).logits
    expected = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    assert causal(**_batch(), labels=labels).loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_folder_without_a_model_and_a_misspelt_field_are_refused(tmp_path: Path) -> None:
    models.masked_from_config(model_type="bert", **TOKENS, **BERT).save_pretrained(tmp_path / "bert")
    (tmp_path / "empty").mkdir()

    with pytest.raises(ValueError, match=r"name_or_path: no model at '.*empty'"):
        models.causal_from_pretrained(name_or_path=str(tmp_path / "empty"))
    with pytest.raises(ValueError, match=r"config: bert has no field droput"):
        models.masked_from_pretrained(name_or_path=str(tmp_path / "bert"), droput=0.1)
    with pytest.raises(ValueError, match=r"model_type: 'modernbert' has no AutoModelForCausalLM"):
        models.causal_from_config(model_type="modernbert", **TOKENS)
