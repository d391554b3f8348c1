"""Several shells on one study."""

import subprocess
from pathlib import Path

import pytest

from tests.helpers import stores
from tests.helpers.postgres import Server
from tests.helpers.waiting import until

N_TRIALS, N_SHELLS = 20, 3


@pytest.fixture(params=["sqlite", "journal", "postgresql"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Addresses of fresh storages, one of each kind."""
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return server.url()
    return f"{request.param}:///{tmp_path / 'new folder' / 'kept'}"


@pytest.mark.slow
@pytest.mark.case("06", "07")
def test_shells_that_start_at_once_end_at_exactly_n_trials(storage: str, tmp_path: Path) -> None:
    """Counting and claiming were two steps: three shells made 61 of 60; and two of three could not make the tables."""
    arguments = (str(tmp_path / "sweep"), storage, str(N_TRIALS))
    shells = [stores.start_shell(stores.work, *arguments) for _ in range(N_SHELLS)]
    errors = [_errors_of(process) for process in shells]

    assert errors == [""] * N_SHELLS
    with stores.opened(tmp_path / "sweep", storage) as store:
        counts = store.progress()
        trials = store.study.get_trials(deepcopy=False)
    assert (counts.complete, counts.counted, counts.running, counts.waiting) == (N_TRIALS, N_TRIALS, 0, 0)
    assert counts.superseded == sum("clone_of" in trial.user_attrs for trial in trials) > 0
    owners = {trial.user_attrs["run"]["owner"]["pid"] for trial in trials}
    assert len(owners) > 1, "one shell did it all: nothing was shared"


def _errors_of(process: "subprocess.Popen[str]") -> str:
    try:
        _, errors = process.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate()
        errors += "\n(still running after 90 s)"
    return errors


@pytest.mark.slow
@pytest.mark.case("06")
@pytest.mark.parametrize("inside", ["", "inside"])
def test_a_trial_of_a_killed_shell_is_found_at_once(storage: str, tmp_path: Path, inside: str) -> None:
    """Also when it was killed in the exclusive section, which must be free again."""
    with stores.shell(stores.claim_and_wait, str(tmp_path / "sweep"), storage, inside) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        if not inside:
            with stores.opened(tmp_path / "sweep", storage) as store:
                assert store.take_up() == []
        process.kill()
        process.wait(10)

        with stores.opened(tmp_path / "sweep", storage) as store:
            found = until(store.take_up, 20, what="the killed shell's trial is found")
            old, new = stores.stored(store, 0), stores.stored(store, 1)

    assert [(each.number, each.clone) for each in found] == [(0, 1)]
    assert (old.state.name, old.user_attrs["superseded_by"]) == ("FAIL", 1)
    assert (new.state.name, new.params) == ("WAITING", old.params)
