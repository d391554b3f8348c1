"""Simple baselines: what a model has to beat before it is worth its seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from project.tasks.splits import Row, split_by_group

if TYPE_CHECKING:
    from sklearn.base import ClassifierMixin

Report = Callable[[int, dict[str, float]], None]


def run(
    *,
    rows: Sequence[Row],
    fractions: Mapping[str, float],
    split_seed: int = 0,
    max_features: int = 20_000,
    seed: int = 0,
    report: Report,
) -> dict[str, float]:
    """Fits each baseline on the train split and returns its accuracy on the others.

    Keys are `<baseline>/<split>/acc` for majority, word_ngrams and char_ngrams. After each baseline
    `report(step, metrics)` is told the new ones; an exception it raises ends the run.

    Args:
        rows: `text`, `label` and `group` of each.
        fractions: split name to share; must name `train` and at least one more.
        split_seed: the split's own seed, so that baselines and models of any seed see the same test.
        max_features: n-grams kept, the most frequent ones.
        seed: of the solver.

    Raises:
        ValueError: fractions without train or without another split; what `split_by_group` refuses.
    """
    if "train" not in fractions or len(fractions) < 2:
        raise ValueError(
            f"fractions: {', '.join(fractions) or 'empty'}; name train and at least one more, such as test"
        )
    splits = split_by_group(rows, fractions=fractions, seed=split_seed)
    return compare(splits=splits, max_features=max_features, seed=seed, report=report)


def compare(
    *,
    splits: Mapping[str, Sequence[Mapping[str, str]]],
    max_features: int = 20_000,
    seed: int = 0,
    report: Report = lambda step, metrics: None,
) -> dict[str, float]:
    """Returns `<baseline>/<split>/acc` for rows that are split already; see `run`.

    Args:
        splits: split name to rows with `text` and `label`; must have `train`.
        max_features: n-grams kept, the most frequent ones.
        seed: of the solver.
        report: told each baseline's metrics.
    """
    metrics: dict[str, float] = {}
    for step, (name, baseline) in enumerate(_baselines(max_features=max_features, seed=seed).items(), start=1):
        new = {f"{name}/{key}": value for key, value in _accuracies(baseline, splits=splits).items()}
        metrics |= new
        report(step, new)
    return metrics


def _accuracies(baseline: ClassifierMixin, *, splits: Mapping[str, Sequence[Mapping[str, str]]]) -> dict[str, float]:
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    columns = {split: ([row["text"] for row in rows], [row["label"] for row in rows]) for split, rows in splits.items()}
    # The products are small: a second BLAS thread only waits, and on a busy machine costs six times the seconds.
    with threadpool_limits(limits=1):
        baseline.fit(*columns.pop("train"))
    return {f"{split}/acc": float(baseline.score(texts, labels)) for split, (texts, labels) in columns.items()}


def _baselines(*, max_features: int, seed: int) -> dict[str, Any]:
    """Returns unfitted classifiers, the cheapest first."""
    from sklearn.dummy import DummyClassifier

    options = {"max_features": max_features, "seed": seed}
    return {
        "majority": DummyClassifier(strategy="most_frequent"),
        "word_ngrams": _linear(analyzer="word", longest=1, **options),
        "char_ngrams": _linear(analyzer="char_wb", longest=4, **options),
    }


def _linear(*, analyzer: str, longest: int, max_features: int, seed: int) -> Any:
    """Returns logistic regression on TF-IDF weights of n-grams of 1 to `longest` words or characters."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    weights = TfidfVectorizer(analyzer=analyzer, ngram_range=(1, longest), max_features=max_features, sublinear_tf=True)
    return make_pipeline(weights, LogisticRegression(C=10.0, max_iter=1000, random_state=seed))
