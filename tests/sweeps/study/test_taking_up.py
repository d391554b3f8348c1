import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import Trial, TrialState

from project.common.errors import ConfigError
from project.common.files.layout import RunLayout
from project.common.processes.identity import ProcessKey
from project.sweeps.study.study_store import StudyStore
from tests.helpers.dying_storage import DyingStorage, KilledError
from tests.helpers.stores import END, claimed, finish_all, open_store, opened, stored, suggest


class Clock:
    """A clock that stands still."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def _leave_running(sweep_dir: Path, **more: Any) -> None:
    """A trial whose owner is gone: its store was closed."""
    with opened(sweep_dir, **more) as store:
        claimed(store)


def _give_away(store: StudyStore, number: int, key: ProcessKey) -> None:
    """Lets a running trial be that of another process."""
    run = stored(store, number).user_attrs["run"]
    store.study._storage.set_trial_user_attr(stored(store, number)._trial_id, "run", run | {"owner": vars(key)})


def test_a_trial_of_a_dead_owner_waits_again_as_a_clone(tmp_path: Path) -> None:
    _leave_running(tmp_path / "sweep")
    with opened(tmp_path / "sweep") as store:
        found = store.take_up()
        old, new = stored(store, 0), stored(store, 1)

        assert [(each.number, each.clone) for each in found] == [(0, 1)]
        assert "which is gone, waits again as trial 1" in str(found[0])
        assert (old.state, old.user_attrs["superseded_by"]) == (TrialState.FAIL, 1)
        assert "is gone" in old.user_attrs["end"]["cause"]
        assert (new.state, new.params, new.distributions) == (TrialState.WAITING, old.params, old.distributions)
        assert new.user_attrs["first_try"] == 0
        assert store.take_up() == []


@pytest.mark.parametrize(("made", "continues"), [("checkpoint", 0), ("folder", None), ("nothing", 0)], ids=str)
def test_the_clone_goes_on_from_a_checkpoint_if_there_may_be_one(
    tmp_path: Path, made: str, continues: int | None
) -> None:
    """A folder that is not seen here may be seen by the shell that runs the clone."""
    layout = RunLayout(tmp_path / "sweep" / "0")
    _leave_running(tmp_path / "sweep")
    if made != "nothing":
        layout.make()
    if made == "checkpoint":
        layout.checkpoint("last").write_bytes(b"weights")
    with opened(tmp_path / "sweep") as store:
        store.take_up()

        assert stored(store, 1).user_attrs.get("continues") == continues


def _outcome(layout: RunLayout, *, status: str, **facts: Any) -> None:
    layout.make()
    layout.outcome.write_text(json.dumps({"status": status} | facts))


def test_a_trial_that_had_completed_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    _leave_running(tmp_path / "sweep")
    _outcome(RunLayout(tmp_path / "sweep" / "0"), status="completed", values=[0.25])
    with opened(tmp_path / "sweep") as store:
        found = store.take_up()

        assert [(each.number, each.clone, each.values) for each in found] == [(0, None, [0.25])]
        assert (stored(store, 0).state, stored(store, 0).value) == (TrialState.COMPLETE, 0.25)
        assert store.claim(1, suggest) is None


@pytest.mark.parametrize(
    ("status", "facts"),
    [
        ("interrupted", {"values": [0.25]}),
        ("completed", {}),
        ("completed", {"values": None}),
        ("completed", {"values": 0.25}),
        ("completed", {"values": [float("nan")]}),
    ],
)
def test_an_outcome_without_a_value_is_not_told(tmp_path: Path, status: str, facts: dict[str, Any]) -> None:
    _leave_running(tmp_path / "sweep")
    _outcome(RunLayout(tmp_path / "sweep" / "0"), status=status, **facts)
    with opened(tmp_path / "sweep") as store:
        assert [each.clone for each in store.take_up()] == [1]


def test_one_value_is_not_told_to_a_study_of_two_objectives(tmp_path: Path) -> None:
    both = {"directions": ["minimize", "maximize"]}
    _leave_running(tmp_path / "sweep", **both)
    _outcome(RunLayout(tmp_path / "sweep" / "0"), status="completed", values=[0.25])
    with opened(tmp_path / "sweep", **both) as store:
        assert [each.clone for each in store.take_up()] == [1]


def test_an_owner_on_another_machine_is_dead_when_its_beat_is_old(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path / "sweep", clock=clock) as store:
        trial = claimed(store)
        _give_away(store, 0, replace(ProcessKey.own(), host="elsewhere"))
        clock.now += 50
        store.beat([trial])
        clock.now += 59
        while_fresh = store.take_up()
        clock.now += 2
        found = store.take_up()

    assert while_fresh == []
    assert [(each.number, each.clone) for each in found] == [(0, 1)]
    assert "on elsewhere" in found[0].owner


def test_a_living_owner_on_this_machine_needs_no_beat(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path / "sweep", clock=clock) as first, opened(tmp_path / "sweep", clock=clock) as second:
        claimed(first)
        clock.now += 3600

        assert second.take_up() == first.take_up() == []
        assert (second.progress().running_others, first.progress().running_ours) == (1, 1)


def test_a_pid_that_was_used_again_is_another_process(tmp_path: Path) -> None:
    with opened(tmp_path / "sweep") as store:
        claimed(store)
        _give_away(store, 0, replace(ProcessKey.own(), start_time="1"))

        assert [each.clone for each in store.take_up()] == [1]


def _claim(store: StudyStore) -> None:
    claimed(store)


def _claim_waiting(store: StudyStore) -> None:
    store.study.enqueue_trial({"lr": 0.5})
    claimed(store)


def _complete(store: StudyStore) -> None:
    store.complete(claimed(store), 1.0, END)


def _prune(store: StudyStore) -> None:
    trial = claimed(store)
    store.report(trial, 1.0, 1)
    store.prune(trial, END)


def _fail(store: StudyStore) -> None:
    store.fail(claimed(store), END, retry=False)


def _retry(store: StudyStore) -> None:
    store.fail(claimed(store), END, retry=True)


def _put_back(store: StudyStore) -> None:
    store.put_back(claimed(store), END | {"checkpoint": "0/checkpoints/last.ckpt"})


def _not_counted(store: StudyStore) -> None:
    store.not_counted(claimed(store), "refused")


def _take_up(store: StudyStore) -> None:
    with opened(store.sweep_dir, store.study._storage) as other:
        claimed(other)
    store.take_up()


def _cut_off(store: StudyStore) -> None:
    """A point of a grid whose claim is refused, and withdrawn."""

    def refuse(trial: Trial) -> dict[str, Any]:
        suggest(trial)
        raise ConfigError("lr: refused")

    grid = {"lr": [0.1, 0.2, 0.3], "size": [1], "kind": ["a"]}
    store.study.sampler = optuna.samplers.GridSampler(grid)
    with suppress(ConfigError):
        store.claim(3, refuse)


@pytest.mark.case("06")
@pytest.mark.parametrize(
    "work",
    [_claim, _claim_waiting, _complete, _prune, _fail, _retry, _put_back, _not_counted, _take_up, _cut_off],
    ids=lambda work: work.__name__.strip("_"),
)
def test_a_kill_between_any_two_writes_leaves_nothing_that_is_not_mended(work: Any, tmp_path: Path) -> None:
    n_writes = _killed_after(None, work, tmp_path / "whole")

    assert n_writes >= 5
    for dies_after in range(n_writes):
        _killed_after(dies_after, work, tmp_path / f"after-{dies_after}")


def _killed_after(dies_after: int | None, work: Any, sweep_dir: Path) -> int:
    """Number of writes of `work`, which is killed after some; another shell must be able to finish the sweep."""
    kept = optuna.storages.InMemoryStorage()
    storage = DyingStorage(kept)
    store = open_store(sweep_dir, storage)
    storage.dies_after = dies_after
    if dies_after is None:
        work(store)
    else:
        with pytest.raises(KilledError):
            work(store)
    store.close()
    with opened(sweep_dir, kept, sampler=store.study.sampler) as other:
        finish_all(other, 3)
        trials = other.study.get_trials()
    _check(trials, n_trials=3)
    return storage.n_writes


def _check(trials: list[optuna.trial.FrozenTrial], *, n_trials: int) -> None:
    counted = [
        each
        for each in trials
        if each.state.is_finished() and not {"superseded_by", "not_counted"} & set(each.user_attrs)
    ]
    assert len(counted) == n_trials
    assert {each.state.name for each in trials} <= {"COMPLETE", "PRUNED", "FAIL"}
    superseded = {
        each.number: each.user_attrs["superseded_by"] for each in trials if "superseded_by" in each.user_attrs
    }
    clones = {each.user_attrs["clone_of"]: each.number for each in trials if "clone_of" in each.user_attrs}
    assert superseded == clones
    assert len(clones) == sum("clone_of" in each.user_attrs for each in trials), "a trial was cloned twice"
    for number, clone in clones.items():
        assert trials[number].params.items() <= trials[clone].params.items()
        assert trials[number].state is TrialState.FAIL
