"""Studies that are sampled without training, and mains of their own whose sampler works in a process."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import optuna

from project.sweeps.sampling.samplers import SweepSampler, make_sampler
from project.sweeps.search.search_space import SearchSpace, read_search_space

NUMBERS = {"x": "interval(0, 1)", "n": "range(0, 9)", "lr": "tag(log, interval(0.001, 1))"}
GRID = {"x": "range(0, 0.5, 0.1)", "layers": "choice([1], [2, 3], null)"}
GP = {"_target_": "optuna.samplers.GPSampler", "seed": 3, "n_startup_trials": 4}


def nodes() -> dict[str, dict[str, Any]]:
    """The configuration of every sampler in the plugin's group, as it is registered."""
    import hydra_plugins.hydra_optuna_sweeper.config  # noqa: F401 - registers them
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    names = [name.removesuffix(".yaml") for name in ConfigStore.instance().list("hydra/sweeper/sampler")]
    found = {}
    for name in names:
        node = OmegaConf.to_container(ConfigStore.instance().load(f"hydra/sweeper/sampler/{name}.yaml").node)
        assert isinstance(node, dict)
        found[name] = {str(key): value for key, value in node.items()}
    return found


def space_of(node: Mapping[str, Any]) -> SearchSpace:
    """Something that the sampler can search."""
    return read_search_space(GRID if str(node["_target_"]).endswith("GridSampler") else NUMBERS, [])


def sample(study: optuna.Study, space: SearchSpace, n_trials: int, *, state: str = "COMPLETE") -> list[dict[str, Any]]:
    """The points of so many trials, each of which ends before the next one begins."""
    points = []
    for _ in range(n_trials):
        trial = study.ask()
        points.append(space.suggest(trial))
        n_objectives = len(study.directions)
        values = [abs(number - points[-1]["x"]) for number in (0.3, 0.6)[:n_objectives]]
        end = optuna.trial.TrialState[state]
        study.tell(trial, values if end.name == "COMPLETE" else None, state=end)
    return points


def in_parts(
    node: Mapping[str, Any], *parts: int, make: Callable[..., SweepSampler] = make_sampler
) -> list[dict[str, Any]]:
    """The points of a study that is taken up by a new sampler for each part."""
    space = space_of(node)
    study, points = optuna.create_study(), []
    for n_trials in parts:
        study.sampler = sampler = make(node, space=space)
        try:
            points += sample(study, space, n_trials)
        finally:
            sampler.close()
    return points


def halved(study: optuna.Study, space: SearchSpace, n_trials: int) -> list[dict[str, Any]]:
    """The points of trials that report, and end when the study's pruner says so."""
    points = []
    for _ in range(n_trials):
        trial = study.ask()
        points.append(space.suggest(trial))
        for step in range(1, 10):
            trial.report(points[-1]["x"], step)
            if trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            study.tell(trial, points[-1]["x"])
    return points


def sample_storage(url: str, n_trials: str) -> None:
    """One of several processes that sample the same study."""
    node = nodes()["random"] | {"seed": 7}
    space = space_of(node)
    study = optuna.load_study(study_name="s", storage=url, sampler=make_sampler(node, space=space))
    sample(study, space, int(n_trials))


def main(method: str, what: str) -> None:
    """A main that samples with a Gaussian process in a child: `sample`s and closes it, or `wait`s to be killed."""
    from project.common.processes import process_server

    if method == "forkserver":
        process_server.start()
    try:
        space = read_search_space(NUMBERS, [])
        sampler = make_sampler(GP, space=space, start_method=method)
        study = optuna.create_study(sampler=sampler)
        sample(study, space, 6)
        print("child", sampler.sampler.pid, flush=True)  # type: ignore[attr-defined]
        if what == "forget":
            return
        if what == "wait":
            print("waits", flush=True)
            time.sleep(60)
        sampler.close()
        print("torch" if "torch" in sys.modules else "no torch", flush=True)
    finally:
        process_server.stop()


if __name__ == "__main__":
    sample_storage(*sys.argv[2:]) if sys.argv[1] == "storage" else main(*sys.argv[1:])
