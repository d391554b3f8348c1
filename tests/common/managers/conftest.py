"""Fixtures of the managers' tests."""

from collections.abc import Iterator

import pytest

from project.common.processes.identity import Identity, Role, current_identity, set_identity


@pytest.fixture
def main_process() -> Iterator[None]:
    """The test's process is main."""
    before = current_identity()
    set_identity(Identity(role=Role.MAIN))
    yield
    set_identity(before)
