import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import Trial, TrialState

from project.common.errors import ConfigError
from project.common.processes import stop
from project.sweeps.study.study_store import StudyStore
from tests.helpers import stores
from tests.helpers.dying_storage import DyingStorage
from tests.helpers.stores import END, claimed, opened, stored, suggest

KINDS = ["sqlite:///kept.db", "journal:///kept.journal", "sqlite://"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty study in each kind of storage that needs no server."""
    monkeypatch.chdir(tmp_path)
    with opened(tmp_path / "sweep", request.param) as store:
        yield store


def test_a_claimed_trial_says_who_runs_what_and_where(store: StudyStore) -> None:
    trial = claimed(store)

    run = stored(store, trial.number).user_attrs["run"]
    assert run["folder"] == "0"
    assert run["overrides"][1] == f"size={trial.params['size']}"
    assert {"host", "pid", "start_time"} <= set(run["owner"])


def test_n_trials_is_the_total_of_what_ended_and_runs(store: StudyStore) -> None:
    first, second, third = (claimed(store, 3) for _ in range(3))
    while_running = store.claim(3, suggest)
    store.complete(first, 1.0, END)
    store.prune(second, END)
    store.fail(third, END, retry=False)

    assert while_running is None
    assert store.claim(3, suggest) is None
    counts = store.progress()
    assert (counts.complete, counts.pruned, counts.failed, counts.counted) == (1, 1, 1, 3)


def test_what_does_not_count_frees_its_place(store: StudyStore) -> None:
    refused, interrupted = claimed(store, 2), claimed(store, 2)
    store.not_counted(refused, "lr: refused")
    clone = store.put_back(interrupted, END)

    numbers = [claimed(store, 2).number for _ in range(2)]
    assert numbers == [clone, 3]
    counts = store.progress()
    assert (counts.not_counted, counts.superseded, counts.counted, counts.running_ours) == (1, 1, 0, 2)
    assert stored(store, 0).user_attrs["not_counted"] == "lr: refused"


def test_an_interrupted_trial_waits_again_with_its_parameters_and_checkpoint(store: StudyStore) -> None:
    trial = claimed(store)
    clone = store.put_back(trial, END | {"checkpoint": "0/checkpoints/last.ckpt"})

    old, new = stored(store, 0), stored(store, clone)
    assert (old.state, old.user_attrs["superseded_by"], old.user_attrs["end"]["exit_code"]) == (TrialState.FAIL, 1, 0)
    assert (new.state, new.params, new.distributions) == (TrialState.WAITING, old.params, old.distributions)
    assert (new.user_attrs["continues"], new.user_attrs["first_try"], new.user_attrs["tries"]) == (0, 0, 0)
    again = claimed(store)
    assert (again.number, again.params) == (clone, trial.params)


def test_a_trial_put_back_before_its_first_checkpoint_goes_on_from_the_earlier_one(store: StudyStore) -> None:
    store.put_back(claimed(store), END | {"checkpoint": "0/checkpoints/last.ckpt"})
    last = store.put_back(claimed(store), END)

    assert stored(store, last).user_attrs["continues"] == 0


def test_a_retry_begins_anew_and_is_linked_to_the_first_try(store: StudyStore) -> None:
    store.put_back(claimed(store), END | {"checkpoint": "0/checkpoints/last.ckpt"})
    second = store.fail(claimed(store), END | {"cause": "SIGSEGV"}, retry=True)
    third = store.fail(claimed(store), END | {"cause": "SIGSEGV"}, retry=True)

    assert (second, third) == (2, 3)
    attributes = [stored(store, number).user_attrs for number in (second, third)]
    assert [(each["first_try"], each["tries"]) for each in attributes] == [(0, 1), (0, 2)]
    assert not any("continues" in each for each in attributes)
    assert store.fail(claimed(store), END, retry=False) is None
    assert store.progress().failed == 1


def test_a_late_end_is_no_crash_and_changes_nothing(store: StudyStore, caplog: pytest.LogCaptureFixture) -> None:
    trial = claimed(store)
    store.put_back(trial, END)

    store.complete(trial, 0.25, END)
    store.prune(trial, END)
    store.fail(trial, END, retry=False)
    store.not_counted(trial, "late")
    assert store.put_back(trial, END) == store.fail(trial, END, retry=True) == 1
    assert store.beat([trial]) == [0]
    assert store.report(trial, 0.5, 1) is True
    assert (
        "COMPLETE with 0.25, but another process had closed it as FAIL, and trial 1 has taken its place" in caplog.text
    )
    assert [each.state.name for each in store.study.get_trials()] == ["FAIL", "WAITING"]


def test_the_same_end_twice_is_no_news(store: StudyStore, caplog: pytest.LogCaptureFixture) -> None:
    """The answer to a commit can be lost: it is repeated."""
    trial = claimed(store)
    store.complete(trial, 0.25, END)
    store.complete(trial, 0.25, END)

    assert "trial 0" not in caplog.text


@pytest.mark.parametrize("value", [math.nan, None, "0.5", True, [0.5, 0.5], []])
def test_what_is_no_value_is_refused_and_the_trial_runs_on(value: Any, tmp_path: Path) -> None:
    with opened(tmp_path / "sweep", "sqlite://") as store:
        trial = claimed(store)

        with pytest.raises(ValueError, match="trial 0: "):
            store.complete(trial, value, END)
        assert stored(store, 0).state is TrialState.RUNNING


def test_several_objectives_are_told_and_never_pruned(tmp_path: Path) -> None:
    with opened(tmp_path / "sweep", directions=["minimize", "maximize"]) as store:
        trial = claimed(store)
        pruned = store.report(trial, 0.5, 1)
        store.complete(trial, (0.5, 3), END)

        assert (pruned, stored(store, 0).values) == (False, [0.5, 3.0])


def test_the_pruner_is_asked_at_each_report(tmp_path: Path) -> None:
    with opened(tmp_path / "sweep", pruner=optuna.pruners.ThresholdPruner(upper=1.0)) as store:
        trial = claimed(store)

        assert [store.report(trial, value, step) for step, value in enumerate((0.5, 2.0))] == [False, True]
        store.prune(trial, END)
        assert (stored(store, 0).state, stored(store, 0).value) == (TrialState.PRUNED, 2.0)


def test_the_last_point_of_a_grid_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Optuna's grid calls `Study.stop` after it, which raises outside of `optimize`."""
    sampler = optuna.samplers.GridSampler({"lr": [0.1, 0.2, 0.3]})
    with opened(tmp_path / "sweep", sampler=sampler) as store:
        _interrupt_and_finish(store)

        values = sorted(trial.params["lr"] for trial in store.study.get_trials(states=[TrialState.COMPLETE]))
        assert values == [0.1, 0.2, 0.3]
        assert "sampler" not in caplog.text


def _interrupt_and_finish(store: StudyStore) -> None:
    """A grid of three points, one of them put back, and one whose claim is cut off."""

    def of_grid(trial: Trial) -> dict[str, Any]:
        trial.suggest_float("lr", 0, 1)
        return {"folder": str(trial.number)}

    def cut_off(trial: Trial) -> dict[str, Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.claim(3, cut_off)
    first = store.claim(3, of_grid)
    assert first is not None
    store.put_back(first, END)
    while (trial := store.claim(3, of_grid)) is not None:
        store.complete(trial, 1.0, END)


def test_a_claim_whose_suggestion_fails_leaves_no_running_trial(store: StudyStore) -> None:
    def refuse(trial: Trial) -> dict[str, Any]:
        raise ConfigError("lr: cannot be")

    clone = store.put_back(claimed(store), END)
    for _ in range(2):
        with pytest.raises(ConfigError, match="lr: cannot be"):
            store.claim(9, refuse)
    waiting = stored(store, clone).state
    store.complete(claimed(store), 1.0, END)
    with pytest.raises(ConfigError, match="lr: cannot be"):
        store.claim(9, refuse)

    counts = store.progress()
    assert (waiting, counts.running, counts.counted, counts.not_counted) == (TrialState.WAITING, 0, 1, 1)


def test_a_requested_stop_claims_no_more_but_still_puts_back(store: StudyStore) -> None:
    trial = claimed(store)
    stop.request_stop(stop.StopRequest(reason="SIGINT", exit_code=130, deadline=math.inf))
    try:
        with pytest.raises(stop.StopRequested):
            store.claim(9, suggest)
        assert store.put_back(trial, END) == 1
    finally:
        stop.forget_stop_request()


def test_secrets_are_not_stored(store: StudyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    words = {"overrides": ["db.password=hunter22", "key=0123456789abcdef"], "folder": "0"}
    trial = store.claim(9, lambda trial: words)
    assert trial is not None
    store.fail(trial, END | {"cause": "no access with 0123456789abcdef"}, retry=False)
    store.not_counted(claimed(store), "postgresql://me:hunter22@host/db")

    kept = str([each.user_attrs for each in store.study.get_trials()])
    assert "hunter22" not in kept
    assert "0123456789abcdef" not in kept


def test_trials_of_another_tool_are_left_alone_and_count_once_they_ended(store: StudyStore) -> None:
    foreign = store.study.ask()
    assert store.take_up() == []
    claimed(store, 1)
    assert store.progress().running == 1
    store.study.tell(foreign, 0.5)

    assert store.claim(2, suggest) is None


def test_points_that_the_user_enqueued_come_first(store: StudyStore) -> None:
    store.study.enqueue_trial({"lr": 0.5, "size": 3, "kind": "b"})

    assert claimed(store).params == {"lr": 0.5, "size": 3, "kind": "b"}


def test_a_claim_and_an_end_cost_two_writes_more_than_optuna_alone(tmp_path: Path) -> None:
    """Each write is a commit, which costs more than all else."""
    storage = DyingStorage(optuna.storages.InMemoryStorage())
    with opened(tmp_path / "sweep", storage) as store:
        store.complete(claimed(store), 1.0, END)
        ours = storage.n_writes
        trial = store.study.ask()
        suggest(trial)
        store.study.tell(trial, 1.0)

    assert (ours, storage.n_writes - ours) == (7, 5)


def test_a_claim_reads_only_trials_that_have_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all of them made the thousandth claim many times as dear as the first."""
    read: list[int] = []
    build = optuna.storages.RDBStorage._build_frozen_trial_from_trial_model
    monkeypatch.setattr(
        optuna.storages.RDBStorage,
        "_build_frozen_trial_from_trial_model",
        lambda self, model: read.append(model.number) or build(self, model),
    )
    costs = []
    with opened(tmp_path / "sweep") as store:
        for _ in range(30):
            read.clear()
            store.complete(claimed(store), 1.0, END)
            costs.append(len(read))

    assert costs[-1] <= costs[2] < 12


@pytest.mark.parametrize("new", [["maximize"], ["minimize", "maximize"]])
def test_a_study_is_taken_up_with_its_directions_only(tmp_path: Path, new: list[str]) -> None:
    stores.open_store(tmp_path / "sweep").close()

    text = rf"hydra.sweeper.direction: minimize → {', '.join(new)} \(old → new\).* even before its first trial"
    with pytest.raises(ConfigError, match=text):
        stores.open_store(tmp_path / "sweep", directions=new)


def test_a_folder_with_trials_of_a_lost_study_is_refused(tmp_path: Path) -> None:
    """New trials would write into folders of old ones: their numbers begin at 0 again."""
    stores.open_store(tmp_path / "sweep").close()
    (tmp_path / "sweep" / "study.db").unlink()
    stores.open_store(tmp_path / "sweep").close()
    (tmp_path / "sweep" / "study.db").unlink()
    (tmp_path / "sweep" / "0").mkdir()

    with pytest.raises(ConfigError, match="holds the trials of another study"):
        stores.open_store(tmp_path / "sweep")
