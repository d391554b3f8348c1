"""The process in which a sampler works that imports torch: it is asked over the supervision pipe, and knows no storage.

What it is told of the study is a copy of the trials, in memory; what it notes about a trial goes back with its answer.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from project.common.errors import ConfigError
from project.common.processes import parent_link, stop

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial

_LOOK_S = 0.25  # s; between two looks whether to stop


@dataclass(frozen=True)
class Request:
    """One call of a method of the sampler.

    Args:
        method: Its name.
        arguments: What it takes after the study and the trial.
        number: The trial that is sampled.
        trials: What the study has, the trial included.
        directions: The study's.
    """

    method: str
    arguments: tuple[Any, ...]
    number: int
    trials: Sequence[FrozenTrial]
    directions: Sequence[str]


@dataclass(frozen=True)
class Answer:
    """What the method returned, and the system attributes that it gave the trial; or why it raised."""

    value: Any = None
    attributes: Mapping[str, Any] | None = None
    error: str | None = None


def serve_samples(node: dict[str, Any], allow: tuple[str, ...]) -> None:
    """Entry of the process: builds the sampler, then answers until it is sent None."""
    from project.sweeps.sampling.built import build
    from project.sweeps.sampling.seeds import Reseeder

    try:
        sampler = build(node, key="hydra.sweeper.sampler", allow=allow)
    except ConfigError as error:
        parent_link.send("refused", list(error.problems))
        return
    reseeder = Reseeder(sampler, node)
    parent_link.send("ready", None)
    while (data := _next()) is not None:
        # Pickled twice, so that what needs Optuna is unpickled here and not in the thread that watches the parent.
        request: Request = pickle.loads(data)
        if request.method == "before_trial":
            reseeder.reseed(request.number)
        parent_link.send("answer", pickle.dumps(_answer(sampler, request)))


def _next() -> bytes | None:
    while True:
        stop.raise_if_stop_requested()
        try:
            data: bytes | None = parent_link.process_messages.take("sample", limit_s=_LOOK_S)
        except TimeoutError:
            continue
        return data


def _answer(sampler: BaseSampler, request: Request) -> Answer:
    try:
        study, trial = _mirror(request)
        before = dict(trial.system_attrs)
        value = getattr(sampler, request.method)(study, trial, *request.arguments)
        after = study._storage.get_trial_system_attrs(trial._trial_id)
        return Answer(value, {name: item for name, item in after.items() if before.get(name) != item})
    except Exception as error:  # noqa: BLE001 - told to the parent, which raises it
        return Answer(error=f"{type(error).__name__}: {error}")


def _mirror(request: Request) -> tuple[Study, FrozenTrial]:
    """A study in memory with the same trials, and the one that is sampled."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage, directions=list(request.directions))  # type: ignore[arg-type]
    sampled = None
    for trial in request.trials:
        copy_id = storage.create_new_trial(study._study_id, template_trial=trial)
        sampled = copy_id if trial.number == request.number else sampled
    assert sampled is not None, "the trial is one of the study's"
    return study, storage.get_trial(sampled)
