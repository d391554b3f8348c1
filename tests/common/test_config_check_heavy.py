"""The check that imports every target and binds it to its signature."""

from typing import Any

import pytest

from project.common.config_check import check_heavy


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Importing sets environment variables, which would be laid to the first test that needs them."""
    pytest.importorskip("lightning.pytorch")
    pytest.importorskip("transformers")


def test_a_good_configuration_has_no_problems() -> None:
    callbacks = {
        "save": {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint", "monitor": "val/acc", "save_top_k": 1},
        "stop": {"_target_": "lightning.pytorch.callbacks.EarlyStopping", "monitor": "val/loss", "min_delta": 0.1},
    }
    task = {
        "optimizer": {"_target_": "torch.optim.AdamW", "_partial_": True, "lr": 1e-3, "betas": [0.9, 0.99]},
        "scheduler": {"_target_": "torch.optim.lr_scheduler.CosineAnnealingLR", "_partial_": True, "T_max": 3},
        "model": {"_target_": "transformers.models.bert.BertConfig", "hidden_size": 8},
    }
    trainer = {"max_epochs": 1, "devices": 2}

    assert check_heavy({"callbacks": callbacks, "task": task, "trainer": trainer, "logger": None}) == []


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        (
            {"callbacks": {"s": {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint", "moniter": "x"}}},
            "callbacks.s.moniter: ModelCheckpoint takes no 'moniter'; did you mean 'monitor'?",
        ),
        (
            {"callbacks": {"s": {"_target_": "lightning.pytorch.callbacks.EarlyStopping"}}},
            "callbacks.s.monitor: missing; EarlyStopping needs it",
        ),
        (
            {"callbacks": {"s": {"_target_": "lightning.pytorch.callbacks.Nothing"}}},
            "callbacks.s._target_: 'lightning.pytorch.callbacks.Nothing' cannot be imported",
        ),
        (
            {"task": {"optimizer": {"_target_": "torch.optim.AdamW", "_partial_": True, "lr": "fast"}}},
            "task.optimizer.lr: 'fast' does not fit; use a number",
        ),
        (
            {"managers": {"model": {"model": {"_target_": "torch.nn.Linear", "in_feature": 2}}}},
            "managers.model.model.in_feature: Linear takes no 'in_feature'",
        ),
        (
            {"task": {"model": {"_target_": "torch.nn.modules.module.torch.load"}}},
            "task.model._target_: 'torch.nn.modules.module.torch.load' leads to torch.serialization.load",
        ),
        (
            {"trainer": {"max_time": "soon"}},
            "trainer: Lightning refuses it: `Timer(duration='soon')` is not a valid duration.",
        ),
        (
            {"trainer": {"limit_val_batches": 1.5}},
            "trainer: Lightning refuses it: You have passed invalid value 1.5 for limit_val_batches",
        ),
        (
            {"trainer": {"max_epoch": 1}},
            "trainer.max_epoch: Trainer takes no 'max_epoch'; did you mean 'max_epochs'?",
        ),
    ],
)
def test_a_problem_is_named(sections: dict[str, Any], problem: str) -> None:
    (found,) = check_heavy(sections)

    assert found.startswith(problem)


def test_all_problems_are_reported_together() -> None:
    wrong = {"_target_": "lightning.pytorch.callbacks.EarlyStopping", "a": 1, "min_delta": "small"}

    problems = check_heavy({"callbacks": {"x": wrong, "y": {"_target_": "torch.nn.Nothing"}}})

    assert [problem.partition(":")[0] for problem in problems] == [
        "callbacks.x.a",
        "callbacks.x.monitor",
        "callbacks.x.min_delta",
        "callbacks.y._target_",
    ]


def test_code_may_add_arguments_to_a_recipe() -> None:
    assert check_heavy({"task": {"model": {"_target_": "torch.nn.Linear", "in_features": 3}}}) == []
