"""An exception is raised in the main thread, once, also in the middle of a system call, and not during closing."""

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from project.common.processes import interrupt


class Interrupted(BaseException):
    """What the tests raise."""


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    interrupt.install()
    yield
    interrupt.uninstall()


def in_thread(after_s: float = 0.05, results: list[bool] | None = None) -> threading.Thread:
    def work() -> None:
        time.sleep(after_s)
        (results if results is not None else []).append(interrupt.interrupt_main(Interrupted()))

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_is_raised_in_a_system_call_of_the_main_thread() -> None:
    thread, began = in_thread(), time.monotonic()

    with pytest.raises(Interrupted):
        time.sleep(30)
    thread.join()
    assert time.monotonic() - began < 5
    assert interrupt.wait_until_raised(0)


def test_is_raised_once_only() -> None:
    results: list[bool] = []
    thread = in_thread(results=results)
    with pytest.raises(Interrupted):
        time.sleep(30)
    thread.join()

    second = in_thread(0.0, results)
    second.join()
    time.sleep(0.05)

    assert results == [True, False]


def test_is_not_raised_once_closing_has_begun() -> None:
    interrupt.disarm()
    results: list[bool] = []

    in_thread(0.0, results).join()
    signal.raise_signal(signal.SIGURG)

    assert results == [False]
    assert not interrupt.wait_until_raised(0)


def test_tells_when_the_main_thread_does_not_take_it_up() -> None:
    assert not interrupt.wait_until_raised(0.01)


def test_leaves_the_default_behind() -> None:
    interrupt.uninstall()

    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL
