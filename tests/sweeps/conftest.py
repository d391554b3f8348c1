"""Fixtures of the sweeps' tests."""

from collections.abc import Iterator

import pytest

from tests.helpers import search_spaces


@pytest.fixture(scope="module")
def composing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The small configuration that `search_spaces.job` composes."""
    with search_spaces.configuration(tmp_path_factory.mktemp("conf")):
        yield
