"""A small configuration with groups, and what a job of a sweep sees of it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from project.sweeps.search.search_space import SearchSpace

ALLOWED = f"{__name__}.*"
FILES = {
    "config.yaml": "defaults: [{model: a}, _self_]\nx: 0\nname: none\ny: of y\nlayers: [9]\nopen: {kept: 1}\n",
    "model/a.yaml": "kind: A\n",
    "model/b.yaml": "kind: B\nwidth: 3\n",
    "extra/small.yaml": "size: 1\n",
    "extra/large.yaml": "size: 2\n",
}


@contextmanager
def configuration(folder: Path) -> Iterator[None]:
    """Makes the configuration, which `job` composes within the block."""
    from hydra import initialize_config_dir

    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with initialize_config_dir(str(folder)):
        yield


def job(overrides: Sequence[str]) -> dict[str, Any]:
    """The resolved configuration as a job with these overrides sees it."""
    from hydra import compose
    from omegaconf import OmegaConf

    config = OmegaConf.to_container(compose("config", overrides=list(overrides)), resolve=True)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def choices(space: SearchSpace, name: str) -> list[Any]:
    """What Optuna keeps for the choices of a key."""
    return list(space.distributions[name].choices)  # type: ignore[attr-defined]


def jobs(space: SearchSpace, name: str) -> list[dict[str, Any]]:
    """One job for each choice of a key."""
    return [job(space.overrides({name: choice})) for choice in choices(space, name)]


def sampled(space: SearchSpace, cfg: Any = None) -> dict[str, Any]:
    """The parameters of a trial."""
    import optuna

    return space.suggest(optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0)).ask(), cfg)


def suggest_width(cfg: Any, trial: Any) -> None:
    """A conditional search space: only model b has a width."""
    if trial.params["model"] == "b":
        trial.suggest_int("model.width", cfg["narrowest"], 8)


def suggest_name(cfg: Any, trial: Any) -> None:
    """A search space with a string that looks like more than it is."""
    trial.suggest_categorical("name", ["it's ${y}"])
