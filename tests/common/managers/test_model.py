"""The model manager: builds with the data's sizes, loads what fits, says what does not."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from project.common.errors import CheckpointError, ConfigError
from project.common.files.model_files import describe
from project.common.managers.directory import DirectoryManager
from project.common.managers.model import ModelManager
from tests.helpers.training import equal


@pytest.fixture(autouse=True)
def _inductor_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """torch sets this variable for the whole process when a transformer is first built."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


LINEAR = {"_target_": "torch.nn.Linear", "in_features": 4, "out_features": 2}


class Sizes:
    """A tokenizer, as far as the model manager asks."""

    is_configured = True
    vocab_size = 50
    pad_token_id = 0

    def save(self, folder: Path) -> None:
        (Path(folder) / "tokenizer.json").write_text("{}")


def manager(folder: Path, *, model: dict[str, Any] | None = None, **options: Any) -> ModelManager:
    directory = DirectoryManager(
        runs_dir=str(folder / "runs"), name="x", cache_dir=str(folder / "cache"), min_free_mb=0
    )
    return ModelManager(directory=directory, cuda=None, model=model or LINEAR, **options)  # type: ignore[arg-type]


TRANSFORMER = {"_target_": "project.tasks.models.text_classifier", "width": 32, "n_layers": 1}


def test_sizes_that_the_target_takes_are_passed(tmp_path: Path) -> None:
    models = manager(tmp_path, model=TRANSFORMER, tokenizer=Sizes())

    module: Any = models.build(n_labels=5)

    assert (module.config.vocab_size, module.config.num_labels) == (50, 5)


def test_a_size_in_the_configuration_wins(tmp_path: Path) -> None:
    models = manager(tmp_path, model=TRANSFORMER | {"vocab_size": 70}, tokenizer=Sizes())

    module: Any = models.build(n_labels=5)

    assert module.config.vocab_size == 70


def test_parameters_are_counted(tmp_path: Path) -> None:
    models = manager(tmp_path)
    module = models.build()
    module.bias.requires_grad_(False)

    assert models.parameter_counts(module) == {"total": 10, "trainable": 8}


def test_weights_come_from_a_checkpoint(tmp_path: Path) -> None:
    first = manager(tmp_path)
    module = first.build()
    first.save(tmp_path / "a.ckpt", {"state_dict": {f"model.{k}": v for k, v in module.state_dict().items()}})

    other = manager(tmp_path, init_from=str(tmp_path / "a.ckpt")).build()

    assert equal(other.state_dict(), module.state_dict())


def test_another_models_weights_are_named(tmp_path: Path) -> None:
    models = manager(tmp_path)
    wrong = {"weight": torch.ones(3, 4), "extra": torch.ones(1)}
    models.save(tmp_path / "a.ckpt", {"state_dict": wrong})

    with pytest.raises(CheckpointError) as caught:
        models.load_weights(models.build(), tmp_path / "a.ckpt")

    text = str(caught.value)
    assert "a.ckpt: holds another model's weights" in text
    assert "bias is missing; extra is not in this model; weight is [3, 4], this model's is [2, 4]" in text


def test_the_newest_intact_checkpoint_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    models = manager(tmp_path)
    layout = models._directory.layout
    assert models.newest_intact() is None
    for name in ("best", "last"):
        models.save(layout.checkpoint(name), {"name": name})
    assert models.newest_intact() == layout.checkpoint("last")
    layout.checkpoint("last").write_bytes(b"half")

    assert models.newest_intact() == layout.checkpoint("best")
    assert "last.ckpt is damaged" in caplog.text


def test_an_export_can_be_read_by_transformers(tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    models = manager(tmp_path, model=TRANSFORMER, tokenizer=Sizes())
    module = models.build(n_labels=5)

    folder = models.export(tmp_path / "export", module)

    read = AutoModelForSequenceClassification.from_pretrained(folder)
    assert all(torch.equal(a, b) for a, b in zip(read.parameters(), module.parameters(), strict=True))
    assert {file.name for file in folder.iterdir()} >= {"model.safetensors", "config.json", "tokenizer.json"}


def test_a_plain_module_is_exported_as_safetensors(tmp_path: Path) -> None:
    models = manager(tmp_path)

    folder = models.export(tmp_path / "export", models.build())

    assert [file.name for file in folder.iterdir()] == ["model.safetensors"]


def test_gradient_checkpointing_needs_a_model_that_has_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gradient_checkpointing: Linear has no"):
        manager(tmp_path, gradient_checkpointing=True).build()
    module: Any = manager(tmp_path, model=TRANSFORMER, tokenizer=Sizes(), gradient_checkpointing=True).build(n_labels=3)
    assert module.is_gradient_checkpointing


def test_lora_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    try:
        import peft  # noqa: F401
    except ImportError:
        with pytest.raises(ConfigError, match=r"managers\.model\.lora: peft is not installed; pip install"):
            manager(tmp_path, lora={"r": 4}).build()
    else:
        models = manager(tmp_path, lora={"r": 1, "target_modules": "all-linear"})
        counts = models.parameter_counts(models.build())
        assert counts["trainable"] < counts["total"]


def test_a_missing_init_from_is_seen_by_the_check(tmp_path: Path) -> None:
    health = manager(tmp_path, init_from="nowhere.ckpt").check()

    assert not health.ok
    assert "managers.model.init_from: nowhere.ckpt does not exist" in health.reason


def test_a_function_that_returns_no_module_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECT_ALLOW", f"{__name__}.*")

    with pytest.raises(
        ConfigError, match=r"^task\.model: .*\.forget returned None; it must return a torch\.nn\.Module"
    ):
        manager(tmp_path, model={"_target_": f"{__name__}.forget"}).build()


def forget() -> None:
    """As a function does whose last line lacks its `return`."""


def test_parameters_that_fit_a_pattern_are_not_trained(tmp_path: Path) -> None:
    models = manager(tmp_path, model=TRANSFORMER, tokenizer=Sizes(), freeze=["*embeddings*", "head.*"])

    module = models.build(n_labels=3)

    frozen = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name, _ in module.named_parameters() if "embeddings" in name or name.startswith("head.")}
    assert 0 < models.parameter_counts(module)["trainable"] < models.parameter_counts(module)["total"]


def test_freezing_nothing_or_everything_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"managers\.model\.freeze: 'body\.\*' fits no parameter; there are weight"):
        manager(tmp_path, freeze=["body.*"]).build()
    with pytest.raises(ConfigError, match=r"managers\.model\.freeze: \* leave nothing to train"):
        manager(tmp_path, freeze=["*"]).build()


def test_a_tokenizer_that_knows_more_tokens_than_the_model_is_refused(tmp_path: Path) -> None:
    models = manager(tmp_path, model=TRANSFORMER | {"vocab_size": 40}, tokenizer=Sizes())

    with pytest.raises(ConfigError, match=r"task\.model: knows 40 tokens, and the tokenizer has 50"):
        models.build(n_labels=3)


def test_a_model_that_began_with_weights_is_made_again_without_them(tmp_path: Path) -> None:
    made = manager(tmp_path, model=TRANSFORMER, tokenizer=Sizes()).build(n_labels=3)
    made.save_pretrained(tmp_path / "folder")  # type: ignore[operator]
    node = {"_target_": "project.tasks.models.classifier_from_pretrained", "name_or_path": str(tmp_path / "folder")}
    models = manager(tmp_path, model=node, tokenizer=Sizes())
    described = describe(models.build(n_labels=3))
    shutil.rmtree(tmp_path / "folder")

    again = models.build(n_labels=3, described=described)

    again.load_state_dict(made.state_dict())
    assert described is not None
    assert describe(torch.nn.Linear(1, 1)) is None
    with pytest.raises(CheckpointError, match="transformers has no model 'pipeline'"):
        models.build(n_labels=3, described=described | {"class": "pipeline"})
