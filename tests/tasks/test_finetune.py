"""Fine-tuning data and weights are found in installed packages, which are never imported."""

import gzip
import json
from pathlib import Path

import pytest

from project.tasks import finetune
from project.tasks.models import masked_from_config
from project.tasks.tokenizers import train_wordpiece

FAILS = "raise RuntimeError('this package is found, not imported')\n"
DOCUMENTS = {
    "s3": {"PutObject": "<p>Adds an object to a <b>bucket</b> &amp; keeps it.</p>", "NoText": ""},
    "sqs": {"SendMessage": "Delivers a message to the specified queue." * 20},
}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages as those of the extra, but small."""
    # torch sets this variable for the whole process when a transformer is first built.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    for service, documents in DOCUMENTS.items():
        for version, prefix in (("2010-01-01", "old "), ("2020-01-01", "")):
            operations = {name: {"documentation": prefix + text} for name, text in documents.items()}
            path = tmp_path / "small_core" / "data" / service / version / "service-2.json.gz"
            path.parent.mkdir(parents=True)
            path.write_bytes(gzip.compress(json.dumps({"operations": operations}).encode()))
    folder = tmp_path / "small_model" / "model"
    tokenizer = train_wordpiece(["an object", "a message"], vocab_size=60, min_frequency=1)
    tokenizer.save_pretrained(folder)
    masked_from_config(
        model_type="bert", vocab_size=len(tokenizer), pad_token_id=0, hidden_size=8, intermediate_size=8,
        num_hidden_layers=1, num_attention_heads=1,
    ).save_pretrained(folder)  # fmt: skip
    for name in ("small_core", "small_model"):
        (tmp_path / name / "__init__.py").write_text(FAILS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_documents_come_from_the_newest_description_without_markup(packages: Path) -> None:
    rows = finetune.load_operations(services=["s3", "sqs"], min_chars=10, max_chars=60, package="small_core")

    assert [(row["label"], row["group"]) for row in rows] == [("s3", "s3 PutObject"), ("sqs", "sqs SendMessage")]
    assert rows[0]["text"] == "Adds an object to a bucket & keeps it."
    assert len(rows[1]["text"]) == 60


def test_a_service_or_package_that_is_not_there_is_refused(packages: Path) -> None:
    with pytest.raises(ValueError, match="services: small_core does not describe ec2"):
        finetune.load_operations(services=["s3", "ec2"], package="small_core")
    with pytest.raises(ValueError, match=r"package: 'not_there' is not installed; pip install '\.\[finetune\]'"):
        finetune.load_operations(package="not_there")
    with pytest.raises(ValueError, match=r"folder: .*data holds no model of transformers; it needs a config\.json"):
        finetune.package_classifier(n_labels=2, package="small_core", folder="data")


def test_the_packages_weights_and_tokenizer_fit_together(packages: Path) -> None:
    tokenizer = finetune.package_tokenizer([], package="small_model")
    model = finetune.package_classifier(n_labels=3, package="small_model", hidden_dropout_prob=0.2)

    outputs = model(**tokenizer(["an object", "a message"], return_tensors="pt", padding=True))

    assert outputs.logits.shape == (2, 3)
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.hidden_dropout_prob == 0.2
