"""Secrets are masked in text, configuration and overrides, and nothing else is."""

from typing import Any

import pytest

from project.common.files import secrets
from project.common.files.secrets import mask_config, mask_override, mask_text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://me:pa-ss@host/db", "postgresql://me:***@host/db"),
        ("mysql+pymysql://me:p%40ss@host:3306/db?ssl=1", "mysql+pymysql://me:***@host:3306/db?ssl=1"),
        ("postgresql://host/db?user=me&password=hidden&x=1", "postgresql://host/db?user=me&password=***&x=1"),
        ("sqlite:///runs/study.db", "sqlite:///runs/study.db"),
        ("https://host:8080/path@x", "https://host:8080/path@x"),
        ("two: redis://:hidden@a and redis://u:also@b", "two: redis://:***@a and redis://u:***@b"),
    ],
)
def test_masks_passwords_in_addresses(text: str, masked: str) -> None:
    assert mask_text(text) == masked


def test_masks_the_values_of_secret_variables_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh")
    monkeypatch.setenv("SHORT_TOKEN", "abc")
    monkeypatch.setenv("PWD", "/work/project")

    assert mask_text("curl -H hf_abcdefgh in /work/project, abc") == "curl -H *** in /work/project, abc"


def test_masks_the_values_of_secret_settings_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_remembered", set())

    secrets.remember_secrets(
        {"a": [{"api_key": "k-12345678"}], "token": "short", "pad_token": "padding-of-rows", "n": 1}
    )

    assert mask_text("Bearer k-12345678, a short padding-of-rows") == "Bearer ***, a short padding-of-rows"


def test_masks_secret_keys_of_a_configuration_and_changes_nothing_else() -> None:
    config: dict[str, Any] = {
        "wandb": {"api_key": "k", "entity": "me", "nested": [{"password": "p"}]},
        "storage": "postgresql://me:p@h/d",
        "token": None,
        "tokenizer": {"pad_token": "[PAD]", "unk_token": "[UNK]", "name": "wordpiece"},
        "token_budget": 4096,
    }

    assert mask_config(config) == {
        "wandb": {"api_key": "***", "entity": "me", "nested": [{"password": "***"}]},
        "storage": "postgresql://me:***@h/d",
        "token": None,
        "tokenizer": {"pad_token": "[PAD]", "unk_token": "[UNK]", "name": "wordpiece"},
        "token_budget": 4096,
    }
    assert config["wandb"]["api_key"] == "k", "what runs is untouched"


@pytest.mark.parametrize(
    ("override", "masked"),
    [
        ("+db.password=x", "+db.password=***"),
        ("++api_key=a=b", "++api_key=***"),
        ("hydra.sweeper.storage=postgresql://me:p@h/d", "hydra.sweeper.storage=postgresql://me:***@h/d"),
        ("task.tokenizer.pad_token=[PAD]", "task.tokenizer.pad_token=[PAD]"),
        ("user={token: x, host: h}", "user={token: ***, host: h}"),
        ("+user=[{secret:'a, b'},{\"api_key\":x}]", '+user=[{secret:***},{"api_key":***}]'),
        ("task.data.files={train:a.csv}", "task.data.files={train:a.csv}"),
        ("lr=0.1", "lr=0.1"),
        ("~trainer", "~trainer"),
    ],
)
def test_masks_overrides_as_typed(override: str, masked: str) -> None:
    assert mask_override(override) == masked
