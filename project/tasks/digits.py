"""Handwritten digits of 8 x 8 pixels, which scikit-learn brings along, and what a linear model reaches on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from project.tasks.splits import split_by_group

Report = Callable[[int, dict[str, float]], None]


def load_digits() -> list[dict[str, Any]]:
    """Returns a row per image: `features` (64 numbers from 0 to 1, row by row), `label` and `group`.

    `group` is the image itself, so that equal ones stay in one split.
    """
    from sklearn import datasets

    images, labels = datasets.load_digits(return_X_y=True)
    return [
        {
            "features": [pixel / 16 for pixel in image],
            "label": str(label),
            "group": " ".join(str(int(pixel)) for pixel in image),
        }
        for image, label in zip(images.tolist(), labels.tolist(), strict=True)
    ]


def compare(
    *,
    splits: Mapping[str, Sequence[Mapping[str, Any]]],
    seed: int = 0,
    report: Report = lambda step, metrics: None,
) -> dict[str, float]:
    """Returns `<baseline>/<split>/acc` of the most frequent class and of logistic regression on the pixels.

    Args:
        splits: split name to rows with `features` and `label`; must have `train`.
        seed: of the solver.
        report: told each baseline's metrics.
    """
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    columns = {
        split: ([row["features"] for row in rows], [row["label"] for row in rows]) for split, rows in splits.items()
    }
    train = columns.pop("train")
    baselines = {
        "majority": DummyClassifier(strategy="most_frequent"),
        "logistic_regression": LogisticRegression(max_iter=1000, random_state=seed),
    }
    metrics: dict[str, float] = {}
    for step, (name, baseline) in enumerate(baselines.items(), start=1):
        with threadpool_limits(limits=1):  # the products are small: a second thread only waits
            baseline.fit(*train)
        new = {f"{name}/{split}/acc": float(baseline.score(*part)) for split, part in columns.items()}
        metrics |= new
        report(step, new)
    return metrics


def run(
    *,
    rows: Sequence[Mapping[str, Any]],
    fractions: Mapping[str, float],
    split_seed: int = 0,
    seed: int = 0,
    report: Report,
) -> dict[str, float]:
    """Splits the rows as the training does and returns what `compare` says of them.

    Args:
        rows: `features`, `label` and `group` of each.
        fractions: split name to share.
        split_seed: the split's own seed.
        seed: of the solver.
        report: told each baseline's metrics.
    """
    # The splitter tells equal rows by their texts: an image is its own.
    named = [{**row, "text": row["group"]} for row in rows]
    return compare(splits=split_by_group(named, fractions=fractions, seed=split_seed), seed=seed, report=report)
