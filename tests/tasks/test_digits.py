"""Digits: a module of one's own, numbers in place of text, and what a linear model reaches."""

import pytest
import torch

from project.tasks import digits
from project.tasks.digits_model import SmallCNN
from project.tasks.splits import split_by_group


def test_each_image_is_a_row_of_64_numbers() -> None:
    rows = digits.load_digits()

    assert len(rows) == 1797
    assert {len(row["features"]) for row in rows} == {64}
    assert {row["label"] for row in rows} == set("0123456789")
    assert min(min(row["features"]) for row in rows) == 0
    assert max(max(row["features"]) for row in rows) == 1


def test_equal_images_stay_in_one_split() -> None:
    rows = [{**row, "text": row["group"]} for row in digits.load_digits()[:40]]

    splits = split_by_group([*rows, *rows], fractions={"train": 0.5, "test": 0.5}, seed=0)

    assert not {row["group"] for row in splits["train"]} & {row["group"] for row in splits["test"]}


def test_the_baselines_are_fitted_on_the_training_rows() -> None:
    rows = digits.load_digits()[:400]
    told: dict[str, float] = {}

    metrics = digits.run(rows=rows, fractions={"train": 0.8, "val": 0.2}, report=lambda step, new: told.update(new))

    assert metrics == told
    assert metrics["majority/val/acc"] < 0.3 < 0.85 < metrics["logistic_regression/val/acc"]


def test_the_network_gives_a_logit_per_class_and_the_mean_loss() -> None:
    torch.manual_seed(0)
    model = SmallCNN(n_labels=10, width=4).eval()
    features, labels = torch.rand(3, 64), torch.tensor([1, 2, 3])

    outputs = model(features=features, labels=labels)

    assert outputs.logits.shape == (3, 10)
    assert outputs.loss == torch.nn.functional.cross_entropy(outputs.logits, labels)
    assert model(features=features).loss is None
    with pytest.raises(ValueError, match=r"width: 0 is no number of channels"):
        SmallCNN(n_labels=10, width=0)
