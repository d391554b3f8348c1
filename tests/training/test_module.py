"""The module's parts that need no training: parameter groups, schedules, steps."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.utilities.types import LRSchedulerConfig
from torch import nn

from project.common.errors import ConfigError
from project.training import plateau
from project.training.datamodule import optimizer_steps
from project.training.module import Module, make_scheduler, parameter_groups
from project.training.split_metrics import n_targets

TRAINER = {"max_epochs": 3, "max_steps": -1, "limit_train_batches": 1.0}


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)


def rates(scheduler: Any, n_steps: int) -> list[float]:
    found = []
    for _ in range(n_steps):
        found.append(scheduler.get_last_lr()[0])
        scheduler.optimizer.step()
        scheduler.step()
    return found


def test_norms_and_biases_have_no_decay() -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.LayerNorm(4))
    model[0].weight.requires_grad_(False)

    decayed, others = parameter_groups(model)

    assert [p.shape for p in decayed["params"]] == [(4, 4)]
    assert "weight_decay" not in decayed
    assert len(others["params"]) == 3
    assert others["weight_decay"] == 0.0


def test_a_schedule_of_transformers_warms_up_over_its_share_of_the_steps() -> None:
    node = {"_target_": "transformers.get_linear_schedule_with_warmup"}

    scheduler = make_scheduler(node, optimizer=optimizer(), total_steps=20, warmup_fraction=0.2)

    assert rates(scheduler, 20)[:6] == [0.0, 0.25, 0.5, 0.75, 1.0, 0.9375]


def test_a_warm_up_may_be_a_number_of_steps() -> None:
    linear = {"_target_": "transformers.get_linear_schedule_with_warmup"}
    one_cycle = {"_target_": "torch.optim.lr_scheduler.OneCycleLR"}
    steps: dict[str, Any] = {"total_steps": 20, "warmup_fraction": 0.5, "warmup_steps": 4}

    found = rates(make_scheduler(linear, optimizer=optimizer(), **steps), 20)
    peaks = rates(make_scheduler(one_cycle, optimizer=optimizer(), **steps), 19)

    assert found.index(max(found)) == 4
    assert peaks.index(max(peaks)) == 3
    with pytest.raises(ConfigError, match=r"task\.warmup_steps: 21, but the training has 20 steps; use fewer"):
        make_scheduler(linear, optimizer=optimizer(), total_steps=20, warmup_steps=21)


def test_one_cycle_gets_its_total_peak_and_warm_up() -> None:
    node = {"_target_": "torch.optim.lr_scheduler.OneCycleLR"}

    found = rates(make_scheduler(node, optimizer=optimizer(), total_steps=20, warmup_fraction=0.5), 19)

    assert found.index(max(found)) == 9
    assert max(found) == pytest.approx(1.0)


def test_a_schedule_without_warm_up_says_so() -> None:
    node = {"_target_": "torch.optim.lr_scheduler.CosineAnnealingLR"}

    with pytest.raises(ConfigError, match=r"task\.warmup_fraction: .*CosineAnnealingLR has no warm-up; set it and "):
        make_scheduler(node, optimizer=optimizer(), total_steps=20, warmup_fraction=0.1)


def test_a_schedule_needs_an_end() -> None:
    node = {"_target_": "transformers.get_cosine_schedule_with_warmup"}

    with pytest.raises(ConfigError, match=r"task\.scheduler: .* needs the number of steps; set trainer\.max_epochs"):
        make_scheduler(node, optimizer=optimizer(), total_steps=None)


PLATEAU = {"_target_": "project.training.plateau.Plateau", "monitor": "val/loss", "patience": 0, "factor": 0.5}


def test_a_plateau_is_one_of_the_objective_unless_the_schedule_says_otherwise() -> None:
    torch_own = {"_target_": "torch.optim.lr_scheduler.ReduceLROnPlateau"}

    modes = [
        make_scheduler(node, optimizer=optimizer(), total_steps=None, mode="max").mode  # type: ignore[attr-defined]
        for node in (torch_own, PLATEAU, PLATEAU | {"mode": "min"})
    ]

    assert modes == ["max", "max", "min"]


def test_a_plateau_looks_at_each_validation_or_at_the_last_one_of_an_epoch() -> None:
    rates = {}
    for interval in ("validation", "epoch"):
        scheduler = make_scheduler(PLATEAU | {"interval": interval}, optimizer=optimizer(), total_steps=None)
        config = LRSchedulerConfig(**plateau.for_lightning(scheduler, monitor="val/loss"))  # type: ignore[arg-type]
        config.reduce_on_plateau = True
        for ends_epoch in (True, False, True):
            plateau.follow([config], {"val/loss": 1.0}, ends_epoch=ends_epoch)
        rates[interval] = scheduler.get_last_lr()

    assert rates == {"validation": [0.25], "epoch": [0.5]}


def test_an_unknown_interval_of_a_plateau_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"task\.scheduler: interval: 'step' is neither; use validation or epoch"):
        make_scheduler(PLATEAU | {"interval": "step"}, optimizer=optimizer(), total_steps=None)


@pytest.mark.parametrize(
    ("changes", "accumulation", "steps"),
    [
        ({}, 1, 30),
        ({}, 4, 9),
        ({"max_steps": 7}, 1, 7),
        ({"max_steps": 100}, 4, 9),
        ({"max_epochs": -1, "max_steps": 7}, 1, 7),
        ({"max_epochs": -1}, 1, None),
        ({"limit_train_batches": 0.5}, 2, 9),
        ({"limit_train_batches": 3}, 1, 9),
    ],
)
def test_steps_follow_from_the_trainers_settings(changes: dict[str, Any], accumulation: int, steps: int | None) -> None:
    assert optimizer_steps(n_batches=10, accumulation=accumulation, trainer=TRAINER | changes) == steps


def test_a_mean_loss_counts_rows_or_predicted_tokens() -> None:
    tokens = torch.tensor([[5, 6, 7], [8, 9, -100]])

    assert n_targets(torch.tensor([0, 1, 2])) == 3
    assert n_targets(tokens) == 3


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        (None, "returned NoneType without loss and logits"),
        (SimpleNamespace(loss=torch.tensor(1.0)), "returned SimpleNamespace without logits"),
    ],
)
def test_a_model_that_returns_something_else_is_told_what_is_wanted(outputs: Any, said: str) -> None:
    module = SimpleNamespace(model=lambda **inputs: outputs)

    with pytest.raises(ConfigError, match=rf"^task\.model: the forward of function {said}; return an object that has"):
        Module._step(module, {"input_ids": torch.ones(1), "labels": torch.ones(1)}, None)  # type: ignore[arg-type]
