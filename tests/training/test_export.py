"""An exported checkpoint is opened by transformers alone, and says the same."""

from pathlib import Path
from typing import Any

import pytest
import torch

from project.common.data import tokenizer_files
from project.common.errors import CheckpointError, ConfigError
from project.common.files.checkpoint_file import save_checkpoint_file
from project.common.whitelist import instantiate
from project.export import export_command
from project.tasks.tokenizers import train_bpe
from tests.helpers.training import compose

TOKENIZER = train_bpe(["some words, more words"], vocab_size=270, min_frequency=1)
SIZES = {"vocab_size": len(TOKENIZER), "pad_token_id": TOKENIZER.pad_token_id}
BERT = {
    "model_type": "bert",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "max_position_embeddings": 16,
}
GPT = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 16}
KINDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "SequenceClassification": ({"_target_": "project.tasks.models.classifier_from_config"} | BERT, ["no", "yes", "é"]),
    "MaskedLM": ({"_target_": "project.tasks.models.masked_from_config"} | BERT, []),
    "CausalLM": ({"_target_": "project.tasks.models.causal_from_config"} | GPT, []),
}


def write_checkpoint(path: Path, node: dict[str, Any], labels: list[str], *overrides: str) -> Any:
    """A checkpoint as a run would write it, of a model that was not trained; returns the model."""
    config = compose("managers/wandb=disabled", f"paths.runs_dir={path.parent}/runs", *overrides)
    config["task"]["model"] = config["managers"]["model"]["model"] = node
    has_text = config["task"]["tokenizer"] is not None
    sizes = (SIZES if has_text else {}) | ({"n_labels": len(labels)} if labels else {})
    model = instantiate(node, **sizes).eval()
    facts = {"config": config, "labels": labels, "tokenizer": tokenizer_files.to_bytes(TOKENIZER) if has_text else None}
    weights = {f"model.{key}": value for key, value in model.state_dict().items()}
    save_checkpoint_file(path, {"state_dict": weights, "run": facts})
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_opens_it_and_says_the_same(kind: str, tmp_path: Path) -> None:
    import transformers

    model = write_checkpoint(tmp_path / "a.ckpt", *KINDS[kind])
    labels = KINDS[kind][1]

    assert export_command([f"ckpt={tmp_path}/a.ckpt", f"to={tmp_path}/folder"]) == 0

    read = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(tmp_path / "folder")
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")("more words", return_tensors="pt")
    inputs.pop("token_type_ids", None)
    assert inputs["input_ids"].tolist() == [TOKENIZER("more words")["input_ids"]]
    assert torch.equal(read(**inputs).logits, model(**inputs).logits)
    if labels:
        assert read.config.id2label == dict(enumerate(labels))
        assert read.config.label2id == {label: number for number, label in enumerate(labels)}
    assert {path.name for path in (tmp_path / "folder").iterdir()} >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.ckpt", *KINDS["MaskedLM"])
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").touch()

    with pytest.raises(ConfigError, match=r"^to: .*folder is there already; give a new folder"):
        export_command([f"ckpt={tmp_path}/a.ckpt", f"to={tmp_path}/folder"])
    with pytest.raises(ConfigError, match=r"^to: not given; python -m project\.export"):
        export_command([f"ckpt={tmp_path}/a.ckpt"])

    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["mine"]


def test_a_model_that_transformers_does_not_know_is_refused_in_a_sentence(tmp_path: Path) -> None:
    node = {"_target_": "project.tasks.digits_model.SmallCNN", "width": 2}
    write_checkpoint(tmp_path / "a.ckpt", node, ["0", "1"], "task=digits")

    with pytest.raises(CheckpointError, match=r"a\.ckpt: its model is a SmallCNN, which transformers cannot open"):
        export_command([f"ckpt={tmp_path}/a.ckpt", f"to={tmp_path}/folder"])

    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ckpt"]
