"""The average of the weights: computed as one would by hand, validated, kept, and given back."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from project.common.files.atomic import write_json
from project.training.ema import EMA
from project.training.evaluate import evaluate
from tests.helpers.training import tiny_config, train


def module_of(*values: float) -> Any:
    module = nn.Linear(len(values), 1, bias=False)
    module.weight.data = torch.tensor([values])
    return module


def trainer_at(step: int) -> Any:
    return SimpleNamespace(global_step=step, state=SimpleNamespace(fn="fit"))


def test_the_average_is_what_one_computes_by_hand_and_steps_count_once() -> None:
    ema, module = EMA(decay=0.15), module_of(1.0)
    ema.on_train_start(trainer_at(0), module)
    expected = 1.0

    for step, weight, decay in ((1, 2.0, 0.1), (2, 4.0, 0.15), (2, 9.0, None)):  # 1/10, then 2/11 is more than 0.15
        module.weight.data.fill_(weight)
        ema.on_train_batch_end(trainer_at(step), module, None, None, 0)
        expected = expected if decay is None else decay * expected + (1 - decay) * weight

    ema.on_validation_start(trainer_at(2), module)
    assert module.weight.item() == pytest.approx(expected)
    ema.on_validation_end(trainer_at(2), module)
    assert module.weight.item() == 9.0
    ema.on_train_end(trainer_at(2), module)
    assert module.weight.item() == pytest.approx(expected)


def test_a_weight_that_is_used_twice_is_stored_under_both_names() -> None:
    module: Any = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    module[1].weight = module[0].weight
    ema = EMA(decay=0.9)
    ema.on_train_start(trainer_at(0), module)
    module[0].weight.data += 1
    checkpoint = {"state_dict": module.state_dict()}

    ema.on_save_checkpoint(trainer_at(0), module, checkpoint)

    assert torch.equal(checkpoint["state_dict"]["0.weight"], checkpoint["state_dict"]["1.weight"])
    assert torch.equal(checkpoint["state_dict"]["0.weight"] + 1, module[0].weight)


@pytest.mark.usefixtures("served")
def test_what_is_kept_is_what_was_validated(tmp_path: Path) -> None:
    run = train(tiny_config(tmp_path, "callbacks=ema", "callbacks.checkpoint.every_s=null"), tmp_path / "run")
    write_json(run.layout.config, {})

    best = run.checkpoint("best")
    averaged, in_training = best["state_dict"], best["weights_in_training"]
    assert any(not torch.equal(averaged[name], weight) for name, weight in in_training.items())
    found = evaluate(run.layout.checkpoint("best"), split="val")["metrics"]
    assert found["val/loss"] == pytest.approx(run.record["metrics"]["val/loss"], rel=1e-5)


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan")])
def test_a_decay_that_is_no_share_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match=r"decay: .* is no share of the old average"):
        EMA(decay=decay)
