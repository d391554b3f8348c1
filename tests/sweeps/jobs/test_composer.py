"""What the composer composes is what Hydra composes, and what Hydra refuses is refused in Hydra's words."""

from collections.abc import Iterator

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from project.sweeps import plugins
from project.sweeps.jobs.composer import Composer
from tests.helpers.tree import ROOT

EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))
OVERRIDES = (
    ["seed=2", "loader.batch_size=8"],
    ["seed=3", "+user.x=1"],
    ["managers/amp=bf16", "seed=2"],
    ["seed=2", "trainer=ddp", "loader.batch_size=8"],
    ["~objective.mode", "seed=5"],
    ["seed=2", "~callbacks"],
    ["tags=[a,b]", "name=${task.name}-x", "paths.runs_dir='a, b'"],
    ["objective={metric: val/loss, mode: min}", "seed=null"],
    ["+user={a: 1}", "++user.a=2", "user.a=3"],
    ["hydra.job.chdir=true", "seed=2"],
    ["seed=2", "hydra.sweep.subdir=x", "seed=3"],
    ["processes.roles.cuda=[rank]", "seed=1e3"],
    [],
)
REFUSED = (
    ["seed=2", "sede=3"],
    ["seed.x=3"],
    ["managers/amp=fp99"],
    ["+seed=3"],
    ["~nothing"],
    ["seed=${oops"],
)


@pytest.fixture
def hydra(hydra_restore_singletons: None) -> Iterator[GlobalHydra]:
    """Hydra as it is in a sweep."""
    plugins.register()
    with initialize_config_dir(str(ROOT / "conf")):
        yield GlobalHydra.instance()


def master_of(hydra: GlobalHydra, experiment: str) -> DictConfig:
    """The sweep's own configuration."""
    assert hydra.hydra is not None
    return hydra.hydra.compose_config(
        config_name="config",
        overrides=[f"+experiment={experiment}"],
        run_mode=RunMode.MULTIRUN,
        from_shell=False,
        with_log_configuration=False,
    )


def by_hydra(hydra: GlobalHydra, master: DictConfig, overrides: list[str], number: int) -> DictConfig:
    """What Hydra's own launchers do for each job."""
    config = hydra.config_loader().load_sweep_config(master, list(overrides))
    with open_dict(config):
        config.hydra.job.id, config.hydra.job.num = str(number), number
    return config


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_trials_configuration_is_the_one_that_hydra_composes(experiment: str, hydra: GlobalHydra) -> None:
    master = master_of(hydra, experiment)
    composer = Composer(hydra.config_loader(), master)

    for again in range(2):  # the second time from what is kept
        for number, overrides in enumerate(OVERRIDES):
            given = [f"+experiment={experiment}", *overrides]
            ours, theirs = composer.compose(given, number=number), by_hydra(hydra, master, given, number)
            assert OmegaConf.to_container(ours) == OmegaConf.to_container(theirs), (again, overrides)
            assert OmegaConf.is_struct(ours) == OmegaConf.is_struct(theirs)


@pytest.mark.parametrize("overrides", REFUSED, ids=str)
def test_what_hydra_refuses_is_refused_in_its_words(overrides: list[str], hydra: GlobalHydra) -> None:
    master = master_of(hydra, "trivial")

    with pytest.raises(HydraException) as theirs:
        by_hydra(hydra, master, ["+experiment=trivial", *overrides], 0)
    with pytest.raises(HydraException) as ours:
        Composer(hydra.config_loader(), master).compose(["+experiment=trivial", *overrides], number=0)

    assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))
