"""Which of several errors a training has ended with."""

import errno
import os

import pytest

from project.common.devices import shared_memory
from project.common.errors import StorageError
from project.common.processes.stop import StopRequest, StopRequested
from project.training.build import lightning_refuses

STOPPED = StopRequested(StopRequest(reason="SIGTERM", exit_code=143, deadline=0.0))


def _teardown() -> None:
    """Has the name that Lightning's own has."""
    raise RuntimeError("Please call `iter(combined_loader)` first.")


def fail(first: BaseException) -> None:
    try:
        raise first
    except (ValueError, OSError, StopRequested):
        _teardown()


@pytest.mark.parametrize("first", [ValueError("first"), STOPPED], ids=["error", "stop"])
def test_what_fails_while_lightning_tidies_up_does_not_hide_what_came_first(first: BaseException) -> None:
    with pytest.raises(type(first)) as caught, lightning_refuses():
        fail(first)

    assert caught.value is first


def fail_again() -> None:
    try:
        raise ValueError("first")
    except ValueError:
        raise RuntimeError("second")  # noqa: B904 - as careless code does


def test_an_error_in_the_handling_of_another_one_elsewhere_stays() -> None:
    with pytest.raises(RuntimeError, match="second"), lightning_refuses():
        fail_again()


def test_shared_memory_without_room_for_a_lock_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ended with a sentence of Lightning's about a loader that nobody had called."""
    monkeypatch.setattr(shared_memory, "shm_mb", lambda: (0.0, 64.0))

    with pytest.raises(StorageError) as caught, lightning_refuses():
        fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    text = "loader: no room for the locks of its workers: /dev/shm is full, 0 KB of its 64 MB are free; use fewer"
    assert str(caught.value).startswith(text)


def test_another_full_disk_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "shm_mb", lambda: (60.0, 64.0))

    with pytest.raises(OSError, match="No space left on device"), lightning_refuses():
        fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
