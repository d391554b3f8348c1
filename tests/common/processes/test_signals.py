"""Handlers only note; what was there before is called and restored."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from project.common.processes import stop
from project.common.processes.signals import SignalNotes, held_back, let_in
from tests.helpers.waiting import until


@pytest.fixture(autouse=True)
def _no_request_stays() -> Iterator[None]:
    yield
    stop.forget_stop_request()


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_becomes_a_request_with_its_exit_code(number: signal.Signals, exit_code: int) -> None:
    with SignalNotes(deadline_s=10.0):
        os.kill(os.getpid(), number)

        request = until(stop.stop_request)

    assert (request.reason, request.exit_code) == (number.name, exit_code)
    assert 9 < request.seconds_left() <= 10


def test_a_second_signal_of_a_kind_shortens_the_deadline_and_a_third_ends_it() -> None:
    left = []
    with SignalNotes(deadline_s=10.0):
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
            request = stop.stop_request()
            assert request is not None
            left.append(request.seconds_left())

    assert 9 < left[0] <= 10
    assert 2 < left[1] <= 3
    assert left[2] == 0


def test_another_signal_does_not_lengthen_the_deadline() -> None:
    with SignalNotes(deadline_s=1.0):
        signal.raise_signal(signal.SIGINT)
        first = stop.stop_request()
    with SignalNotes(deadline_s=60.0):
        signal.raise_signal(signal.SIGTERM)

    assert stop.stop_request() is first


def test_calls_and_restores_what_was_there() -> None:
    called: list[int] = []

    def theirs(number: int, frame: Any) -> None:
        called.append(number)

    before = signal.signal(signal.SIGTERM, theirs)
    with SignalNotes(deadline_s=1.0):
        signal.raise_signal(signal.SIGTERM)
    restored = signal.signal(signal.SIGTERM, before)

    assert called == [signal.SIGTERM]
    assert restored is theirs


def test_does_not_call_pythons_own_handler_which_would_raise() -> None:
    with SignalNotes(deadline_s=1.0):
        signal.raise_signal(signal.SIGINT)

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_the_shell_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with SignalNotes(deadline_s=1.0):
        signal.raise_signal(signal.SIGHUP)
    signal.signal(signal.SIGHUP, before)

    assert stop.stop_request() is None


def test_a_child_says_who_received_it_and_ignores_what_is_its_parents() -> None:
    with SignalNotes(deadline_s=1.0, ignore=(signal.SIGINT,), name="rank1"):
        signal.raise_signal(signal.SIGINT)
        assert stop.stop_request() is None
        signal.raise_signal(signal.SIGTERM)

    request = stop.stop_request()
    assert request is not None
    assert request.reason == "rank1 received SIGTERM"


def test_says_that_a_thread_cannot_handle_signals(caplog: pytest.LogCaptureFixture) -> None:
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=SignalNotes(deadline_s=1.0).install)
    thread.start()
    thread.join()

    assert "started from a thread: signals cannot be handled here" in caplog.text
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_is_held_back_is_not_lost() -> None:
    with SignalNotes(deadline_s=1.0):
        with held_back():
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # to the process, another thread may take it
            time.sleep(0.05)
            assert stop.stop_request() is None

        assert until(stop.stop_request).reason == "SIGTERM"


def test_letting_in_ends_what_was_held_back() -> None:
    with SignalNotes(deadline_s=1.0), held_back():
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        let_in()

        assert until(stop.stop_request).reason == "SIGTERM"
