"""A sweep from its configuration to its last lines, with our launcher or another one."""

import json
import logging
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig
from optuna.exceptions import ExperimentalWarning

from project.common.errors import ConfigError
from project.common.files.atomic import write_json
from project.common.files.run_folder import changes_no_result
from project.common.processes import logs, stop
from project.sweeps.foreign import run_in_batches
from project.sweeps.jobs.composer import Composer
from project.sweeps.plugins import TrialLauncher
from project.sweeps.rehearsal import rehearse
from project.sweeps.sampling.pruners import make_pruner
from project.sweeps.sampling.samplers import SweepSampler, make_sampler, n_grid_points
from project.sweeps.search.given_overrides import bare_name
from project.sweeps.search.search_space import SearchSpace, changes, read_search_space
from project.sweeps.settings import SweepSettings
from project.sweeps.shown.results import print_end, write_results
from project.sweeps.study.study_store import StudyStore
from project.sweeps.study.trial_book import NOT_COUNTED
from project.sweeps.trials import Trials

log = logging.getLogger(__name__)

SEARCH_SPACE = "search_space"
SWEEP_FILE = "sweep.json"


def run_sweep(
    config: DictConfig, given: Mapping[str, Any], *, launcher: Launcher, loader: Any, arguments: list[str]
) -> None:
    """Runs the study to its end, or to a request to stop; exits with 1 when trials have failed.

    Args:
        config: The sweep's own configuration.
        given: The keys of `hydra.sweeper`.
        launcher: Ours or any other.
        loader: Hydra's, which knows the choices of groups.
        arguments: The command line's overrides.

    Raises:
        ConfigError: What was given will not do; no trial has begun.
        StorageLostError: The study's storage does not answer any more.
    """
    logs.set_up_terminal()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        _run_study(config, given, launcher=launcher, loader=loader, arguments=arguments)
    finally:
        logs.tear_down()


def _run_study(
    config: DictConfig, given: Mapping[str, Any], *, launcher: Launcher, loader: Any, arguments: list[str]
) -> None:
    settings = SweepSettings.read(given, config)
    space = read_search_space(
        settings.params, arguments, custom_search_space=settings.custom_search_space, config_loader=loader
    )
    sweep_dir = Path(str(config.hydra.sweep.dir)).absolute()
    _rehearse(space, config=config, launcher=launcher, loader=loader)
    sampler = make_sampler(settings.sampler, space=space)
    try:
        store = _open(settings, space=space, sampler=sampler, sweep_dir=sweep_dir)
        try:
            _run(settings, config=config, space=space, store=store, launcher=launcher, sampler=sampler)
        finally:
            store.close()
    finally:
        sampler.close()


def _rehearse(space: SearchSpace, *, config: DictConfig, launcher: Launcher, loader: Any) -> None:
    composer = launcher.jobs if isinstance(launcher, TrialLauncher) else Composer(loader, config)
    rehearse(space, compose=lambda overrides: composer.compose(overrides, number=0), loader=loader)


def _open(settings: SweepSettings, *, space: SearchSpace, sampler: Any, sweep_dir: Path) -> StudyStore:
    store = StudyStore.open(
        settings.storage,
        study_name=settings.study_name,
        sweep_dir=sweep_dir,
        directions=settings.directions,
        sampler=sampler,
        pruner=make_pruner(settings.pruner, n_objectives=len(settings.directions)),
        storage_timeout_s=settings.storage_timeout_s,
    )
    try:
        with store.exclusive():
            _require_same_search(store, space, settings.metrics)
        write_json(sweep_dir / SWEEP_FILE, {"study_name": settings.study_name, "storage_masked": store.url_masked})
    except BaseException:
        store.close()
        raise
    return store


def _require_same_search(store: StudyStore, space: SearchSpace, metrics: list[str]) -> None:
    """What a study searches, and for what, are the first that it saw a trial of."""
    study, present = store.study, _compared(space.as_plain())
    stored, names = study.user_attrs.get(SEARCH_SPACE), study.metric_names
    if stored is None or _was_only_refused(study):
        study.set_user_attr(SEARCH_SPACE, json.loads(json.dumps(present)))
        with warnings.catch_warnings(category=ExperimentalWarning, action="ignore"):
            study.set_metric_names(metrics)
        return
    lines = changes(stored, present)
    if names is not None and names != metrics:
        lines.append(f"hydra.sweeper.metrics: {', '.join(names)} → {', '.join(metrics)}")
    if lines:
        raise ConfigError(
            f"hydra.sweeper.params: the study {study.study_name!r} was begun with another search space (old → new); "
            "give the old one, or begin a new study by hydra.sweeper.study_name",
            *lines,
        )


def _was_only_refused(study: optuna.Study) -> bool:
    """Whether no trial of it has ever begun, since the configuration would not do: it may be corrected."""
    trials = study.get_trials(deepcopy=False)
    return bool(trials) and all(NOT_COUNTED in trial.user_attrs for trial in trials)


def _compared(plain: dict[str, Any]) -> dict[str, Any]:
    """Without what changes no result, such as where things lie and how processes are kept."""
    return plain | {"fixed": [it for it in plain["fixed"] if not changes_no_result(bare_name(it))]}


def _run(
    settings: SweepSettings,
    *,
    config: DictConfig,
    space: SearchSpace,
    store: StudyStore,
    launcher: Launcher,
    sampler: SweepSampler,
) -> None:
    n_trials = min(settings.n_trials, n_grid_points(sampler) or settings.n_trials)
    trials = Trials(store=store, space=space, settings=settings, config=config, n_trials=n_trials)
    _say_start(store, n_trials)
    if isinstance(launcher, TrialLauncher):
        from project.sweeps.coordinator import Coordinator

        Coordinator(trials, launcher.jobs).run()
    else:
        run_in_batches(trials, launcher)
    trials.raise_refusal()
    write_results(store.sweep_dir, store.study, space)
    print_end(store.study, sweep_dir=store.sweep_dir, space=space)
    _exit(trials)


def _say_start(store: StudyStore, n_trials: int) -> None:
    counts = store.progress()
    log.info("study %s: %s", store.study.study_name, store.url_masked)
    if counts.counted:
        log.info("%d of %d trials are done, %d to go", counts.counted, n_trials, max(0, n_trials - counts.counted))


def _exit(trials: Trials) -> None:
    request = stop.stop_request()
    if request is not None:
        print(f"{request.reason}: the same command goes on", file=sys.stderr)
        sys.exit(request.exit_code)
    if trials.store.progress().failed:
        sys.exit(1)
