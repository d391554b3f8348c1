"""Names of datasets where the hub cannot be reached. No test needs a network."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from project.common.data import hub
from project.common.errors import DataError


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=5) as server:
        yield server


@pytest.fixture
def refusing() -> Iterator[socket.socket]:
    """Bound and not listening."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        yield server


def address(server: socket.socket) -> str:
    return f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Its queue is full, so it answers no further connection."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server


def test_an_address_that_listens_is_reachable(listening: socket.socket) -> None:
    assert hub.is_reachable(address(listening), within_s=30)


def test_one_that_refuses_or_does_not_answer_is_not(refusing: socket.socket, silent: socket.socket) -> None:
    assert not hub.is_reachable(address(refusing), within_s=30)
    assert not hub.is_reachable(address(silent), within_s=0.3)


def test_behind_a_proxy_the_proxy_counts(
    listening: socket.socket, refusing: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", address(listening))
    assert hub.is_reachable(address(refusing), within_s=30)

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert not hub.is_reachable(address(refusing), within_s=30)


@pytest.mark.parametrize("name", ["a", "nobody/nothing", "nobody/nothing:small"])
def test_a_name_that_is_neither_a_file_nor_a_download_is_told_without_asking_the_hub(
    name: str, refusing: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries tried for 24 s before a misspelt file was refused."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address(refusing))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)

    with pytest.raises(DataError) as caught:
        hub.load(name)

    assert str(caught.value) == (
        f"task.data.files: {name!r} is no file here, and as a dataset of the hub it could not be loaded "
        f"({address(refusing)} does not answer, and there is no earlier download); "
        "give a path that exists, or go online"
    )
