"""Fixtures of the sweeps' tests."""

from collections.abc import Iterator

import pytest

from tests.helpers import search_spaces
from tests.helpers.postgres import Server, running_server


@pytest.fixture(scope="module")
def composing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The small configuration that `search_spaces.job` composes."""
    with search_spaces.configuration(tmp_path_factory.mktemp("conf")):
        yield


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[Server]:
    """A PostgreSQL server that all tests use, each with a study name of its own."""
    with running_server() as server:
        yield server


@pytest.fixture
def postgres() -> Iterator[Server]:
    """A PostgreSQL server that the test may stop."""
    with running_server() as server:
        yield server
