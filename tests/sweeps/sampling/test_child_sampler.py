"""A sampler that needs torch works in a process of its own: main stays without torch, and nothing is left of it."""

import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest

from project.common.errors import ChildFailedError, ConfigError
from project.common.processes import stop
from project.sweeps.sampling import child_sampler
from project.sweeps.sampling.samplers import SweepSampler, make_sampler
from project.sweeps.search.search_space import read_search_space
from tests.helpers.samplers import GP, NUMBERS, in_parts, nodes, sample
from tests.helpers.tree import running
from tests.helpers.waiting import until

SPACE = read_search_space(NUMBERS, [])


@pytest.fixture
def sampler(start_method: str) -> Iterator[SweepSampler]:
    made = make_sampler(GP, space=SPACE, start_method=start_method)
    yield made
    made.close()


def child_of(sampler: SweepSampler) -> psutil.Process:
    return psutil.Process(sampler.sampler.pid)  # type: ignore[attr-defined]


def kill(process: psutil.Process) -> None:
    process.kill()
    until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, 5)


def test_a_gaussian_process_samples_and_its_process_ends_with_it(sampler: SweepSampler) -> None:
    process = child_of(sampler)
    study = optuna.create_study(sampler=sampler)
    points = sample(study, SPACE, 7)
    sampler.close()
    sampler.close()

    assert sampler.name == "GPSampler"
    assert len({str(point) for point in points}) == 7
    assert any(key.startswith("gp:relative_params") for key in study.trials[-1].system_attrs)
    assert not process.is_running()


@pytest.mark.case("08")
def test_a_seed_gives_each_trial_its_point_also_when_the_sweep_goes_on(served: int) -> None:
    points = in_parts(GP, 8)

    assert in_parts(GP, 5, 3) == points
    assert in_parts(GP | {"seed": 4}, 8) != points


def test_trials_that_run_at_once_are_kept_apart(served: int) -> None:
    sampler = make_sampler(GP, space=SPACE)
    study = optuna.create_study(sampler=sampler)
    sample(study, SPACE, 5)
    points = [SPACE.suggest(study.ask()) for _ in range(3)]
    sampler.close()

    assert len({str(point) for point in points}) == 3


def test_a_sampler_within_a_sampler_takes_the_whole_into_the_process(served: int) -> None:
    node = nodes()["random"] | {"_target_": "optuna.samplers.PartialFixedSampler", "fixed_params": {"n": 4}}
    del node["seed"]
    sampler = make_sampler(node | {"base_sampler": GP}, space=SPACE)
    points = sample(optuna.create_study(sampler=sampler), SPACE, 6)
    sampler.close()

    assert sampler.name == "PartialFixedSampler"
    assert {point["n"] for point in points} == {4}


def test_several_objectives_are_sampled(served: int) -> None:
    sampler = make_sampler(GP, space=SPACE)
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)

    assert len(sample(study, SPACE, 6)) == 6
    sampler.close()


def test_a_process_that_was_killed_is_replaced_and_told(
    sampler: SweepSampler, caplog: pytest.LogCaptureFixture
) -> None:
    study = optuna.create_study(sampler=sampler)
    sample(study, SPACE, 5)
    first = child_of(sampler)
    kill(first)
    with caplog.at_level(logging.WARNING):
        sample(study, SPACE, 1)

    assert f"hydra.sweeper.sampler: its process (pid {first.pid}) was killed by SIGKILL; another process" in caplog.text
    assert child_of(sampler).pid != first.pid


def test_one_that_dies_of_every_question_is_an_error(served: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = make_sampler(GP, space=SPACE)
    exchange = child_sampler.ChildSampler._exchange

    def killing(self: Any, request: bytes) -> bytes:
        kill(psutil.Process(self.pid))
        return exchange(self, request)

    monkeypatch.setattr(child_sampler.ChildSampler, "_exchange", killing)
    with pytest.raises(ChildFailedError, match=r"its process \(pid \d+\) was killed by SIGKILL"):
        optuna.create_study(sampler=sampler).ask()
    sampler.close()


def test_one_that_does_not_answer_is_an_error_and_gone(served: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = make_sampler(GP, space=SPACE)
    process = child_of(sampler)
    process.suspend()
    monkeypatch.setattr(child_sampler, "ANSWER_LIMIT_S", 0.5)

    with pytest.raises(ChildFailedError, match=rf"its process \(pid {process.pid}\) has not answered for 0\.5 s"):
        optuna.create_study(sampler=sampler).ask()
    assert not process.is_running()
    with pytest.raises(ChildFailedError, match="its process was closed"):
        optuna.create_study(sampler=sampler).ask()


def test_what_fails_in_the_process_is_told(served: int) -> None:
    sampler = make_sampler(GP, space=SPACE)
    study = optuna.create_study(sampler=sampler)
    sample(study, SPACE, 4)
    study.tell(study.ask(), 0.5)  # has no parameters: an intersection of none
    trial = study.ask()
    trial.set_user_attr("a", 1)

    with pytest.raises(ChildFailedError, match=r"hydra\.sweeper\.sampler: GPSampler failed: \w+"):
        sampler.sampler._call("no_such_method", study, study.trials[-1])  # type: ignore[attr-defined]
    sampler.close()


def test_a_stop_request_ends_the_wait_at_once(served: int) -> None:
    sampler = make_sampler(GP, space=SPACE)
    process = child_of(sampler)
    process.suspend()
    stop.request_stop(stop.StopRequest(reason="SIGTERM", exit_code=143, deadline=time.monotonic() + 9))
    try:
        with pytest.raises(stop.StopRequested):
            optuna.create_study(sampler=sampler).ask()
    finally:
        stop.forget_stop_request()

    assert not process.is_running()


def test_what_the_sampler_refuses_is_a_refused_configuration(served: int) -> None:
    node = {"_target_": "optuna.samplers.PartialFixedSampler", "fixed_params": {}, "base_sampler": GP}
    node |= {"base_sampler": GP | {"independent_sampler": {"_target_": "optuna.samplers.QMCSampler", "qmc_type": "no"}}}

    with pytest.raises(ConfigError, match=r"^hydra\.sweeper\.sampler\..*qmc_type"):
        make_sampler(node, space=SPACE)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_main_never_imports_torch(method: str, tmp_path: Path) -> None:
    command = ["python", "-m", "tests.helpers.samplers", method, "sample"]
    with running(command, output=tmp_path / "out") as tree:
        assert tree.wait() == 0, tree.text
        tree.assert_nothing_left()

    assert "no torch" in tree.text


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_main_that_was_killed(method: str, number: int, tmp_path: Path) -> None:
    with running(["python", "-m", "tests.helpers.samplers", method, "wait"], output=tmp_path / "out") as tree:
        tree.wait_until_written("waits")
        assert psutil.pid_exists(int(tree.text.split("child ")[1].split()[0]))
        os.kill(tree.pid, number)
        tree.wait()

        tree.assert_nothing_left()


@pytest.mark.slow
def test_a_main_that_forgets_to_close_ends_all_the_same(tmp_path: Path) -> None:
    with running(["python", "-m", "tests.helpers.samplers", "spawn", "forget"], output=tmp_path / "out") as tree:
        assert tree.wait(30) == 0, tree.text

        tree.assert_nothing_left()
