"""Stores of studies for tests, and shells of their own that work on one."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial

from project.sweeps.study.study_store import StudyStore
from tests.helpers.tree import ROOT

optuna.logging.set_verbosity(optuna.logging.WARNING)
END = {"cause": None, "checkpoint": None, "seconds": 1.0, "exit_code": 0}


def suggest(trial: Trial) -> Mapping[str, Any]:
    """Three parameters, as most spaces have them."""
    rate, size = trial.suggest_float("lr", 1e-4, 1.0, log=True), trial.suggest_int("size", 1, 9)
    kind = trial.suggest_categorical("kind", ["a", "b"])
    return {"folder": str(trial.number), "overrides": [f"lr={rate}", f"size={size}", f"kind={kind}"]}


def open_store(sweep_dir: Path, storage: Any = None, **more: Any) -> StudyStore:
    """A store with a random sampler, without pruner."""
    defaults: dict[str, Any] = {
        "study_name": "tested",
        "directions": ["minimize"],
        "sampler": optuna.samplers.RandomSampler(seed=1),
        "pruner": optuna.pruners.NopPruner(),
    }
    return StudyStore.open(storage, sweep_dir=sweep_dir, **defaults | more)


@contextmanager
def opened(sweep_dir: Path, storage: Any = None, **more: Any) -> Iterator[StudyStore]:
    """As `open_store`, closed at the end."""
    store = open_store(sweep_dir, storage, **more)
    try:
        yield store
    finally:
        store.close()


def claimed(store: StudyStore, n_trials: int = 1000) -> Trial:
    """A trial, which there must be."""
    trial = store.claim(n_trials, suggest)
    assert trial is not None
    return trial


def stored(store: StudyStore, number: int) -> FrozenTrial:
    """A trial as it is stored."""
    return store.study.get_trials(deepcopy=False)[number]


def finish_all(store: StudyStore, n_trials: int) -> None:
    """Claims and completes until there is nothing left to claim."""
    while (trial := store.claim(n_trials, suggest)) is not None:
        store.complete(trial, 1.0, END)


def work(sweep_dir: str, storage: str, n_trials: str) -> None:
    """A shell: claims until nothing is left, puts a fifth of the new trials back, completes the rest."""
    with opened(Path(sweep_dir), storage or None) as store:
        while (trial := store.claim(int(n_trials), suggest)) is not None:
            time.sleep(0.05)  # a trial takes time, in which others claim
            if trial.number % 5 == 0 and "clone_of" not in trial.user_attrs:
                store.put_back(trial, END)
            else:
                store.complete(trial, float(trial.number), END)


def claim_and_wait(sweep_dir: str, storage: str, inside: str) -> None:
    """A shell that claims a trial, says so, and hangs: in the exclusive section if `inside` is not empty."""
    with opened(Path(sweep_dir), storage or None) as store:
        trial = claimed(store)
        if inside:
            with store.exclusive():
                print(trial.number, flush=True)
                time.sleep(600)
        print(trial.number, flush=True)
        time.sleep(600)


def start_shell(function: Any, *arguments: str) -> "subprocess.Popen[str]":
    """Starts one of the functions above in a process of its own."""
    code = f"import sys; from tests.helpers.stores import {function.__name__} as run; run(*sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


@contextmanager
def shell(function: Any, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """As `start_shell`; killed at the end if it still runs."""
    process = start_shell(function, *arguments)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)
