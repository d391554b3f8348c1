"""Programs of the system that some tests start: without one they are skipped, but for CI, where they fail."""

import os

import pytest

VARIABLE = "TESTS_NEED_ALL"


def miss(what: str, *, package: str) -> None:
    """Ends the test, since `what` is not installed."""
    text = f"{what} is not installed; apt-get install {package}"
    if os.environ.get(VARIABLE):
        pytest.fail(f"{text} ({VARIABLE} is set)")
    pytest.skip(text)
