"""A misspelt key, choice or group is answered with what was probably meant, and with what there is."""

import pytest
from hydra.errors import HydraException

from project.common.config_check import check_light
from project.common.config_hints import hint
from tests.helpers.training import compose

KEYS = {
    "managers/amp=bf17": "did you mean 'bf16'? there are bf16, default, fp16, fp32",
    "task=langauge_id": "did you mean 'language_id'? there are ",
    "trainer.max_epoch=3": "did you mean 'max_epochs'? there are accelerator, ",
    "trainer.zzz=3": "there are accelerator, ",
    "sede=3": "did you mean 'seed'? there are callbacks, ",
    "task.optimizer.lrr=1": "did you mean 'lr'? there are _target_, ",
    "manager/amp=bf16": "groups: did you mean 'managers/amp'? there are callbacks, ",
    "managers/ampp=bf16": "groups: did you mean 'managers/amp'? there are callbacks, ",
}


@pytest.mark.parametrize(("override", "text"), KEYS.items(), ids=KEYS.keys())
def test_says_what_was_meant_and_what_there_is(override: str, text: str) -> None:
    with pytest.raises(HydraException) as caught:
        compose(override)

    assert (hint(caught.value) or "").startswith(text)


@pytest.mark.parametrize("error", [None, ValueError("x"), HydraException("x")])
def test_says_nothing_of_what_it_does_not_know(error: BaseException | None) -> None:
    assert hint(error) is None


def test_a_misspelt_group_that_is_added_is_taken_for_one() -> None:
    assert check_light({"experimnt": "trivial"})[0].startswith(
        "experimnt: is no key of this configuration; did you mean the group, +experiment=…?"
    )


def test_all_that_is_wrong_is_told_at_once_and_once() -> None:
    config = compose(
        *("seed=1.5", "loader.batch_size=-1", "processes.deadline_s=soon", "trainer.max_epochs=x"),
        *("task.optimizer.lr=abc", "notes=3", "print_config=2", "tags=x"),
    )

    assert sorted(problem.partition(" does not fit; use ")[0] for problem in check_light(config)) == [
        "loader.batch_size: -1",
        "notes: 3",
        "print_config: 2",
        "processes.deadline_s: 'soon'",
        "seed: 1.5",
        "tags: 'x'",
        "task.optimizer.lr: 'abc'",
        "trainer.max_epochs: 'x'",
    ]
