"""The tokenizer: trained once, one per process, a copy per thread, quiet in forks, carried by checkpoints."""

import io
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from project.common.errors import CheckpointError, ConfigError, NotInitializedError
from project.common.managers.tokenizer import VARIABLE, TokenizerManager
from project.common.processes.identity import Identity, Role, current_identity, set_identity
from project.common.whitelist import ALLOW_VARIABLE
from tests.helpers.data import HELPERS, directory_manager, start, tokenizer_manager, word_rows

TEXTS = [row["text"] for row in word_rows(300)]


@pytest.fixture(autouse=True)
def role() -> Iterator[None]:
    before = current_identity()
    set_identity(Identity(role=Role.RANK, rank=0))
    yield
    set_identity(before)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[TokenizerManager]:
    manager = tokenizer_manager(tmp_path)
    manager.prepare(lambda: TEXTS, fingerprint="texts")
    yield manager
    manager.close()


def no_texts() -> list[str]:
    raise AssertionError("asked for texts although the tokenizer is there")


def test_a_second_manager_finds_what_the_first_has_trained(tmp_path: Path, manager: TokenizerManager) -> None:
    second = tokenizer_manager(tmp_path)
    second.prepare(no_texts, fingerprint="texts")

    assert second.fingerprint == manager.fingerprint
    assert second.encode(TEXTS) == manager.encode(TEXTS)


def test_other_texts_or_settings_are_trained_anew(tmp_path: Path, manager: TokenizerManager) -> None:
    others = [tokenizer_manager(tmp_path), tokenizer_manager(tmp_path, train={**train(), "vocab_size": 60})]
    others[0].prepare(lambda: ["something else", "entirely"], fingerprint="others")
    others[1].prepare(lambda: TEXTS, fingerprint="texts")

    assert len({manager.fingerprint, *(other.fingerprint for other in others)}) == 3


def train() -> dict[str, Any]:
    return {"_target_": "project.tasks.tokenizers.train_wordpiece", "min_frequency": 1}


def test_too_early_it_says_which_call_is_missing_in_which_process(tmp_path: Path) -> None:
    manager = tokenizer_manager(tmp_path)

    with pytest.raises(NotInitializedError, match=r"not trained yet in rank0 \(pid \d+\); call get_data_manager"):
        manager.encode(["text"])
    assert not manager.check().ok
    manager.close()


def test_a_pretrained_folder_needs_no_texts(tmp_path: Path, manager: TokenizerManager) -> None:
    manager.save(tmp_path / "saved")
    pretrained = TokenizerManager(
        directory=directory_manager(tmp_path), pretrained=str(tmp_path / "saved"), train=train()
    )

    assert pretrained.encode(TEXTS, max_length=4) == manager.encode(TEXTS, max_length=4)
    assert pretrained.fingerprint == manager.fingerprint
    assert (pretrained.vocab_size, pretrained.pad_token_id) == (manager.vocab_size, manager.pad_token_id)


def test_a_place_without_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    manager = tokenizer_manager(tmp_path, pretrained=str(tmp_path / "empty"))

    with pytest.raises(ConfigError, match=r"tokenizer\.pretrained: no tokenizer at '.*empty'"):
        _ = manager.tokenizer
    manager.close()


def test_data_without_text_needs_no_tokenizer(tmp_path: Path) -> None:
    manager = TokenizerManager(directory=directory_manager(tmp_path))

    assert not manager.is_configured
    assert manager.check().ok
    with pytest.raises(ConfigError, match="neither pretrained nor train is given"):
        manager.encode(["text"])
    manager.close()


def test_threads_encode_to_different_lengths_at_once(manager: TokenizerManager) -> None:
    """The library's tokenizer keeps truncation in itself: with one for all threads it raises `Already borrowed`."""
    expected = {length: manager.encode(TEXTS, max_length=length) for length in (3, 4, 5, None)}
    wrong: list[object] = []
    begin = threading.Barrier(4)

    def encode(length: int | None) -> None:
        begin.wait(timeout=20)
        for _ in range(20):
            if manager.encode(TEXTS, max_length=length) != expected[length]:
                wrong.append(length)
            manager.tokenizer(TEXTS[:3], truncation=length is not None, max_length=length, padding=True)

    threads = [threading.Thread(target=encode, args=(length,)) for length in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


def test_each_thread_has_its_own_tokenizer(manager: TokenizerManager) -> None:
    seen: list[Any] = [manager.tokenizer]
    thread = threading.Thread(target=lambda: seen.append(manager.tokenizer))
    thread.start()
    thread.join(timeout=20)

    assert seen[0] is not seen[1]
    assert manager.tokenizer is seen[0]


def test_a_checkpoint_carries_the_tokenizer(tmp_path: Path, manager: TokenizerManager) -> None:
    file = io.BytesIO()
    torch.save({"tokenizer": manager.as_bytes()}, file)
    file.seek(0)
    other = tokenizer_manager(tmp_path / "elsewhere")
    other.from_bytes(torch.load(file, weights_only=True)["tokenizer"])
    other.prepare(no_texts, fingerprint="anything")

    assert other.fingerprint == manager.fingerprint
    assert other.as_bytes() == manager.as_bytes()
    assert other.encode(TEXTS) == manager.encode(TEXTS)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"tokenizer.json": "{"}', b'{"a.txt": "x"}'])
def test_a_damaged_checkpoints_tokenizer_is_refused(tmp_path: Path, data: bytes) -> None:
    manager = tokenizer_manager(tmp_path)

    with pytest.raises(CheckpointError, match="tokenizer: the checkpoint's is damaged"):
        manager.from_bytes(data)
    manager.close()


def test_no_file_of_a_checkpoints_tokenizer_leaves_its_folder(tmp_path: Path, manager: TokenizerManager) -> None:
    data = manager.as_bytes().replace(b'"tokenizer.json"', f'"{tmp_path}/evil/../tokenizer.json"'.encode(), 1)
    manager.from_bytes(data)

    assert not (tmp_path / "tokenizer.json").exists()
    assert manager.encode(TEXTS[:1])


def test_the_library_threads_only_while_a_rank_tokenises_a_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    manager = tokenizer_manager(tmp_path)
    seen: list[str | None] = []

    def texts() -> Iterator[str]:
        for text in TEXTS:
            seen.append(os.environ.get(VARIABLE))
            yield text

    manager.prepare(texts, fingerprint="seen")  # type: ignore[arg-type]
    after = os.environ.get(VARIABLE)
    manager.close()

    assert set(seen) == {"true"}
    assert after == "false"
    assert VARIABLE not in os.environ


@pytest.mark.case("29")
@pytest.mark.parametrize("choice", ["true", "false"])
def test_the_users_own_setting_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str) -> None:
    monkeypatch.setenv(VARIABLE, choice)
    set_identity(Identity(role=Role.WORKER, rank=0, worker=0))
    manager = tokenizer_manager(tmp_path)
    manager.prepare(lambda: TEXTS, fingerprint="texts")
    during = os.environ[VARIABLE]
    manager.close()

    assert during == os.environ[VARIABLE] == choice


@pytest.mark.case("29")
def test_a_worker_uses_one_thread_whatever_its_rank_had_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    rank = tokenizer_manager(tmp_path)
    set_identity(Identity(role=Role.WORKER, rank=0, worker=0))
    worker = tokenizer_manager(tmp_path)
    seen: list[str] = []
    worker.prepare(lambda: [seen.append(os.environ[VARIABLE]) or text for text in TEXTS], fingerprint="w")  # type: ignore[func-returns-value]
    rank.close()
    worker.close()

    assert set(seen) == {"false"}


@pytest.mark.case("29")
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_after_threads_neither_hangs_nor_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left alone, the library warns in every forked child, and hangs there if its threads are forced on."""
    monkeypatch.delenv(VARIABLE, raising=False)
    child = start(f"import sys; from {HELPERS} import encode_in_fork; encode_in_fork(sys.argv[1])", str(tmp_path))
    out, err = child.communicate(timeout=100)

    assert out.strip() == "0", err
    assert "parallelism" not in err.lower()


def test_a_function_that_returns_no_tokenizer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_VARIABLE, f"{HELPERS}.*")
    manager = tokenizer_manager(tmp_path, train={"_target_": f"{HELPERS}.count_texts"})

    with pytest.raises(ConfigError, match=r"count_texts gave a list; it must return a PreTrainedTokenizerFast"):
        manager.prepare(lambda: TEXTS, fingerprint="texts")
    manager.close()


def test_training_says_what_it_has_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = tokenizer_manager(tmp_path)
    with caplog.at_level(logging.INFO):
        manager.prepare(lambda: TEXTS, fingerprint="texts")
    health = manager.check()
    manager.close()

    assert f"trained a tokenizer of {int(health.reason.split()[0])} tokens" in caplog.text
