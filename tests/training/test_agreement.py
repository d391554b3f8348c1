"""Ranks agree on stopping and saving: on the same step, and no more often than it is worth."""

from pathlib import Path

from project.training.agreement import NOTHING, Agreement, Decision
from tests.helpers.agreement import ask, run_ranks


def test_a_rank_alone_decides_at_once() -> None:
    agreement = Agreement(1)

    assert agreement.decide(1, exit_code=0, save=False) == NOTHING
    assert agreement.decide(2, exit_code=143, save=True) == Decision(exit_code=143, save=True)


def test_what_one_rank_is_asked_for_all_do_at_the_same_step(tmp_path: Path) -> None:
    """Rank 1 is asked to stop before step 5, rank 0 finds a checkpoint due from step 3 on."""
    found = run_ranks(ask, tmp_path)

    assert found[0] == found[1]
    stops = [step for step, code, _ in found[0] if code]
    assert stops
    assert stops[0] >= 5
    assert any(save for _, _, save in found[0])


def test_it_is_asked_less_often_when_steps_are_short(tmp_path: Path) -> None:
    [first, second] = run_ranks(ask, tmp_path, n_steps=3000, step_s=0.0)

    assert first == second
    assert 1 < len(first) < 1500
