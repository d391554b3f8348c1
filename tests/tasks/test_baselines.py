import pytest

from project.tasks.baselines import run
from project.tasks.language_id import load_messages

FRACTIONS = {"train": 0.8, "val": 0.1, "test": 0.1}
Reports = list[tuple[int, dict[str, float]]]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    return load_messages(languages=["da", "de", "sv"])


@pytest.fixture(scope="module")
def outcome(rows: list[dict[str, str]]) -> tuple[dict[str, float], Reports]:
    reports: Reports = []
    metrics = run(rows=rows, fractions=FRACTIONS, report=lambda step, new: reports.append((step, new)))
    return metrics, reports


def test_measures_each_baseline_on_each_split_but_train(outcome: tuple[dict[str, float], Reports]) -> None:
    names = ("majority", "word_ngrams", "char_ngrams")

    assert set(outcome[0]) == {f"{name}/{split}/acc" for name in names for split in ("val", "test")}


def test_characters_beat_words_and_words_beat_the_majority(outcome: tuple[dict[str, float], Reports]) -> None:
    metrics = outcome[0]

    assert 0.25 < metrics["majority/test/acc"] < 0.42
    assert metrics["majority/test/acc"] + 0.3 < metrics["word_ngrams/test/acc"] < metrics["char_ngrams/test/acc"]
    assert metrics["char_ngrams/test/acc"] > 0.9


def test_reports_after_each_baseline(outcome: tuple[dict[str, float], Reports]) -> None:
    metrics, reports = outcome

    assert [step for step, _ in reports] == [1, 2, 3]
    assert {key: value for _, new in reports for key, value in new.items()} == metrics


def test_the_same_seeds_give_the_same_metrics(
    rows: list[dict[str, str]], outcome: tuple[dict[str, float], Reports]
) -> None:
    assert run(rows=rows, fractions=FRACTIONS, report=lambda step, new: None) == outcome[0]


def test_an_exception_of_the_report_ends_the_run(rows: list[dict[str, str]]) -> None:
    def stop(step: int, new: dict[str, float]) -> None:
        raise InterruptedError(f"stopped at {step}")

    with pytest.raises(InterruptedError, match="stopped at 1"):
        run(rows=rows, fractions=FRACTIONS, report=stop)


@pytest.mark.parametrize("fractions", [{}, {"train": 1.0}, {"val": 0.5, "test": 0.5}])
def test_a_split_without_train_or_without_another_is_refused(
    rows: list[dict[str, str]], fractions: dict[str, float]
) -> None:
    with pytest.raises(ValueError, match=r"fractions: .*; name train and at least one more, such as test"):
        run(rows=rows, fractions=fractions, report=lambda step, new: None)
