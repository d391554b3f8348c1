"""Requests to stop are noted once, can only become more urgent, and wake who waits."""

import os
import select
import threading
import time
from collections.abc import Iterator

import pytest

from project.common.processes import stop
from project.common.processes.stop import StopRequest, StopRequested


@pytest.fixture(autouse=True)
def _no_request_stays() -> Iterator[None]:
    yield
    stop.forget_stop_request()


def request_in(seconds: float, reason: str = "test") -> StopRequest:
    return StopRequest(reason=reason, exit_code=143, deadline=time.monotonic() + seconds)


def test_a_safe_point_raises_only_when_somebody_asked() -> None:
    stop.raise_if_stop_requested()
    stop.request_stop(request_in(1, "SIGTERM"))

    with pytest.raises(StopRequested, match="SIGTERM") as caught:
        stop.raise_if_stop_requested()
    assert caught.value.request.exit_code == 143


def test_passes_an_except_exception() -> None:
    assert not issubclass(StopRequested, Exception)


def test_a_later_request_can_only_shorten_the_deadline() -> None:
    first, longer, shorter = request_in(5), request_in(50), request_in(1)

    for request in (first, longer, shorter):
        stop.request_stop(request)

    assert stop.stop_request() is shorter


def test_seconds_left_are_never_negative() -> None:
    assert request_in(-5).seconds_left() == 0


def test_wakes_whoever_waits_at_every_request_and_never_blocks() -> None:
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    stop.wake_on_request(write_fd)
    for _ in range(70_000):  # more than a pipe holds
        stop.request_stop(request_in(1))
    woken = select.select([read_fd], [], [], 0)[0]
    stop.no_longer_wake(write_fd)
    os.close(read_fd)
    os.close(write_fd)

    assert woken == [read_fd]


def test_a_request_from_a_thread_counts() -> None:
    thread = threading.Thread(target=stop.request_stop, args=(request_in(1),))
    thread.start()
    thread.join()

    assert stop.stop_request() is not None


def test_a_request_ends_a_sleep() -> None:
    started = time.monotonic()
    timer = threading.Timer(0.05, lambda: stop.request_stop(request_in(5)))
    timer.start()
    stop.sleep(30)
    stop.sleep(30)  # there is one already
    timer.join()

    assert 0.04 <= time.monotonic() - started < 20


def test_an_undisturbed_sleep_lasts_as_long_as_it_should() -> None:
    started = time.monotonic()
    stop.sleep(0.05)

    assert time.monotonic() - started >= 0.05
