import time

import pytest

from project.tasks.trivial import run


def test_reports_a_falling_loss_at_each_step_and_returns_the_last() -> None:
    reports: list[tuple[int, dict[str, float]]] = []

    metrics = run(steps=4, step_s=0, report=lambda step, new: reports.append((step, new)))

    losses = [new["loss"] for _, new in reports]
    assert [step for step, _ in reports] == [1, 2, 3, 4]
    assert losses == sorted(set(losses), reverse=True)
    assert metrics == reports[-1][1]


def test_takes_the_time_it_was_given() -> None:
    start_s = time.monotonic()
    run(steps=3, step_s=0.02, report=lambda step, new: None)

    assert time.monotonic() - start_s >= 0.06


def test_an_exception_of_the_report_ends_the_run() -> None:
    def stop(step: int, new: dict[str, float]) -> None:
        if step == 2:
            raise InterruptedError(f"stopped at {step}")

    with pytest.raises(InterruptedError, match="stopped at 2"):
        run(step_s=0, report=stop)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"steps": 0}, "steps: 0; use 1 or more"), ({"step_s": -1.0}, r"step_s: -1\.0; use 0 or more seconds")],
)
def test_impossible_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(**settings, report=lambda step, new: None)  # type: ignore[arg-type]
