"""A PostgreSQL server that goes away while a sweep runs."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from optuna.trial import Trial

from project.common.processes import stop
from project.sweeps.study.patience import StorageLostError
from project.sweeps.study.study_store import StudyStore
from tests.helpers.postgres import Server
from tests.helpers.stores import END, claimed, opened, stored, suggest
from tests.helpers.waiting import until

pytestmark = pytest.mark.slow


def _use(store: StudyStore, running: Trial, name: str) -> None:
    """One call of each kind."""
    match name:
        case "claim":
            claimed(store)
        case "complete":
            store.complete(running, 0.5, END)
        case "put_back":
            store.put_back(running, END)
        case "fail":
            store.fail(running, END, retry=True)
        case "report":
            store.report(running, 0.5, 1)
        case "progress":
            store.progress()
        case "take_up":
            store.take_up()


CALLS = ("report", "progress", "take_up", "claim", "complete")


def test_calls_wait_for_a_server_that_comes_back(
    postgres: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "project")
    with opened(tmp_path / "sweep", postgres.url()) as store:
        running = claimed(store)
        for name in CALLS:
            _while_away(postgres, lambda name=name: _use(store, running, name))
        store.put_back(claimed(store), END)

        assert stored(store, 0).value == 0.5
        assert stored(store, 0).intermediate_values == {1: 0.5}
        counts = store.progress()
    assert (counts.complete, counts.running_ours, counts.waiting) == (1, 1, 1)
    told = [record.getMessage() for record in caplog.records if "does not answer" in record.getMessage()]
    assert len(told) == len(CALLS), "each outage is told once"


def _while_away(server: Server, call: Callable[[], None]) -> None:
    """Stops the server as a crash does, makes the call, and starts the server once the call has noticed."""
    server.stop()
    timer = threading.Timer(2.0, server.start)
    timer.start()
    began = time.monotonic()
    try:
        call()
    finally:
        timer.join(60)
    assert time.monotonic() - began > 1.5, "it did not need the server"


def test_a_server_that_stays_away_is_given_up(postgres: Server, tmp_path: Path) -> None:
    with opened(tmp_path / "sweep", postgres.url(), storage_timeout_s=1.5) as store:
        running = claimed(store)
        postgres.stop()
        for name in (*CALLS, "put_back", "fail"):
            with pytest.raises(StorageLostError) as raised:
                _use(store, running, name)
            text = str(raised.value)
            assert "has not answered for" in text
            assert "trials 0 stay RUNNING there. The same command takes up what was not finished" in text
            assert raised.value.exit_code == 1
        assert store.beat([running]) == [], "a beat that fails is followed by another"


def test_a_claim_that_an_outage_cut_off_leaves_no_trial_running(postgres: Server, tmp_path: Path) -> None:
    """The trial was made, could not be withdrawn, and its claim is repeated: nobody would ever end the first one."""
    server = threading.Timer(2.0, postgres.start)

    def cut_off(trial: Trial) -> object:
        if not server.is_alive() and not server.finished.is_set():
            postgres.stop()
            server.start()
        return suggest(trial)

    with opened(tmp_path / "sweep", postgres.url()) as store:
        trial = store.claim(2, cut_off)  # type: ignore[arg-type]
        server.join(60)
        assert trial is not None
        store.complete(trial, 1.0, END)
        store.complete(claimed(store, 2), 1.0, END)

        assert store.claim(2, suggest) is None
        counts = store.progress()
        assert (counts.complete, counts.counted, counts.running) == (2, 2, 0)


class LockLosingClock:
    """A clock that is asked when trials have been counted, and before one is made: then the lock is lost."""

    def __init__(self, server: Server, *, restarts: bool, then: Callable[[], None]) -> None:
        self._server, self._restarts, self._then = server, restarts, then
        self.is_armed = True

    def __call__(self) -> float:
        if self.is_armed:
            self.is_armed = False
            self._lose()
            self._then()
        return time.time()

    def _lose(self) -> None:
        if self._restarts:
            self._server.stop()
            self._server.start()
        else:
            self._server.sql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        until(lambda: not self._server.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"), 10)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_lost_lock_is_noticed_and_the_claim_repeated(postgres: Server, tmp_path: Path, restarts: bool) -> None:
    """Another shell took the last place meanwhile: what was counted was no longer true."""
    with opened(tmp_path / "sweep", postgres.url()) as other:
        theirs: list[Trial] = []
        clock = LockLosingClock(postgres, restarts=restarts, then=lambda: theirs.append(claimed(other, 1)))
        with opened(tmp_path / "sweep", postgres.url(), clock=clock) as store:
            ours = store.claim(1, suggest)
            counts = store.progress()

    assert (len(theirs), ours) == (1, None)
    assert (counts.running_others, counts.running_ours, counts.counted) == (1, 0, 0)


def test_a_requested_stop_does_not_wait_longer_than_its_deadline(postgres: Server, tmp_path: Path) -> None:
    with opened(tmp_path / "sweep", postgres.url()) as store:
        running = claimed(store)
        postgres.stop()
        deadline = time.monotonic() + 3
        stop.request_stop(stop.StopRequest(reason="SIGINT", exit_code=130, deadline=deadline))
        try:
            with pytest.raises(StorageLostError, match="trials 0 stay RUNNING"):
                store.put_back(running, END)
            assert time.monotonic() < deadline
        finally:
            stop.forget_stop_request()


def test_a_shell_that_stays_in_the_section_is_not_waited_for_for_ever(postgres: Server, tmp_path: Path) -> None:
    url = postgres.url()
    with opened(tmp_path / "sweep", url) as other, opened(tmp_path / "sweep", url, storage_timeout_s=1) as store:
        with other.exclusive(), pytest.raises(StorageLostError, match="kept locked by another process for 1 s"):
            store.take_up()
        assert claimed(store).number == 0
