"""The sweeper and the launcher as Hydra finds them: light shells, since Hydra imports them at every start.

Their names in Hydra's configuration carry the package's name, so that two projects can share an environment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from hydra_plugins.hydra_optuna_sweeper.config import OptunaSweeperConf
from omegaconf import DictConfig

from project.common.told_exit import told_by_exit

if TYPE_CHECKING:
    from project.sweeps.jobs.launcher import JobLauncher

PACKAGE = __name__.partition(".")[0]


@dataclass
class TrialLauncherConf:
    """What `conf/hydra/launcher/trials.yaml` explains."""

    _target_: str = f"{__name__}.TrialLauncher"
    n_jobs: int | None = None
    gpus_per_trial: int | None = None
    device_pool: Any = None
    timeout_min: float | None = None
    memory_limit_mb: float | None = None
    fail_fast: bool = False
    max_failures: int | None = None
    start_method: str = "auto"
    deadline_s: float = 10.0
    stall_timeout_s: float | None = None


@dataclass
class StudySweeperConf(OptunaSweeperConf):
    """The plugin's own keys, and what `conf/hydra/sweeper/study.yaml` explains."""

    _target_: str = f"{__name__}.StudySweeper"
    direction: Any = "minimize"
    metrics: Any = None
    pruner: Any = None
    max_retries: int = 0
    skip_repeated: bool = False
    storage_timeout_s: float = 300.0
    defaults: list[Any] = field(default_factory=lambda: [{"sampler": "tpe"}])


class TrialLauncher(Launcher):
    """Runs each job in a fresh process of the process server, several at once if wished.

    Args:
        settings: The keys of `TrialLauncherConf`.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = TrialLauncherConf(**settings)
        self._jobs: JobLauncher | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from project.sweeps.jobs.launcher import JobLauncher

        self._jobs = JobLauncher(self.settings, hydra_context=hydra_context, task_function=task_function, config=config)

    @property
    def jobs(self) -> "JobLauncher":
        """What starts jobs; there after `setup`."""
        assert self._jobs is not None, "Hydra calls setup first"
        return self._jobs

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Runs all jobs and returns when the last has ended."""
        from project.sweeps.jobs.batch import launch_all

        with told_by_exit():
            return launch_all(self.jobs, job_overrides, initial_job_idx=initial_job_idx)


class StudySweeper(Sweeper):
    """Optuna's sweep with trials that are processes and a study that goes on where it stopped.

    Args:
        settings: The keys of `StudySweeperConf`, as they stand.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self._config: DictConfig | None = None
        self._launcher: Launcher | None = None
        self._loader: ConfigLoader | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._config, self._loader = config, hydra_context.config_loader
        self._launcher = Plugins.instance().instantiate_launcher(
            config=config, hydra_context=hydra_context, task_function=task_function
        )

    def sweep(self, arguments: list[str]) -> None:
        """Runs the study to its end."""
        from project.sweeps.sweep import run_sweep

        assert self._config is not None, "Hydra calls setup first"
        assert self._launcher is not None, "Hydra calls setup first"
        with told_by_exit():
            run_sweep(self._config, self.settings, launcher=self._launcher, loader=self._loader, arguments=arguments)


def register() -> None:
    """Lets Hydra know the plugins where the distribution is not installed, as in a checkout."""
    for plugin in (TrialLauncher, StudySweeper):
        if f"{plugin.__module__}.{plugin.__name__}" not in Plugins.instance().class_name_to_class:
            Plugins.instance().register(plugin)


_store = ConfigStore.instance()
_store.store(group="hydra/launcher", name=PACKAGE, node=TrialLauncherConf, provider=PACKAGE)
_store.store(group="hydra/sweeper", name=PACKAGE, node=StudySweeperConf, provider=PACKAGE)
