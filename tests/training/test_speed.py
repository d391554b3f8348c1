"""What a training's time was spent on."""

from collections.abc import Iterator

import pytest

from project.training.speed import NAMES, StepClock


@pytest.fixture
def clock() -> StepClock:
    times: Iterator[float] = iter([0.0, 1.0, 4.0, 4.5, 5.0, 100.0, 101.0, 103.0])
    return StepClock(lambda: next(times))


def test_each_second_belongs_to_one_part_and_validation_to_none(clock: StepClock) -> None:
    clock.start()  # 0
    clock.spend("data", n_rows=8)  # 1
    clock.spend("compute")  # 4
    clock.spend("logging")  # 4.5
    clock.pause()  # 5, until the validation ends at 100
    clock.spend("compute")
    clock.start()
    clock.spend("data", n_rows=8)  # 101
    clock.spend("compute")  # 103

    assert clock.spent_s == {"data": 2.0, "compute": 5.0, "logging": 1.0}
    assert clock.summary() == "speed: 2 rows/s, bounded by compute (data 25%, compute 62%, logging 12%)"


def test_values_are_of_the_time_since_they_were_last_asked_for(clock: StepClock) -> None:
    clock.start()
    clock.spend("data", n_rows=8)
    first = clock.values()
    clock.spend("compute", n_rows=6)

    second = clock.values()

    assert [first[name] for name in NAMES[:2]] == [8.0, 1.0]
    assert [second[name] for name in NAMES[:2]] == [2.0, 0.0]
    assert second["speed/memory_mb"] > 10


def test_a_training_without_a_step_has_a_summary() -> None:
    assert StepClock().summary().startswith("speed: 0 rows/s, bounded by")
