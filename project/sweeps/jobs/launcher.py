"""What the launcher plugin does once a sweep really begins: compose jobs, lease devices, start and end processes."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.singleton import Singleton
from hydra.core.utils import setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from project.common import process_registry
from project.common.being_main import being_main
from project.common.devices.device_leases import DeviceLeases
from project.common.devices.inventory import nvml_devices, visible, visible_devices_env
from project.common.errors import ConfigError
from project.common.processes import logs, process_server, signals, stop
from project.common.processes.handover import share_identity
from project.common.processes.identity import Identity, Role, set_identity
from project.common.processes.outcome import outcome_of
from project.common.processes.start_method import choose_start_method
from project.common.server_record import server_noted
from project.sweeps.jobs.composer import Composer
from project.sweeps.jobs.job import Job, RunningJob
from project.sweeps.jobs.job_pool import JobPool
from project.sweeps.jobs.limits import Limits
from project.sweeps.jobs.pickling import dumps

if TYPE_CHECKING:
    from project.sweeps.plugins import TrialLauncherConf

log = logging.getLogger(__name__)


class JobLauncher:
    """Starts the jobs of one sweep.

    Args:
        settings: The launcher's keys.
        hydra_context: Hydra's.
        task_function: What each job runs.
        config: The sweep's own configuration.
    """

    def __init__(
        self,
        settings: "TrialLauncherConf",
        *,
        hydra_context: HydraContext,
        task_function: TaskFunction,
        config: DictConfig,
    ) -> None:
        self.settings, self.config = settings, config
        self._context, self._task = hydra_context, task_function
        self._composer = Composer(hydra_context.config_loader, config)
        self._leases: DeviceLeases | None = None
        self._pool: JobPool | None = None
        _check(settings)

    @property
    def sweep_dir(self) -> Path:
        """The sweep's folder."""
        return Path(str(self.config.hydra.sweep.dir)).absolute()

    @property
    def n_jobs(self) -> int:
        """How many jobs may run at once."""
        asked = self.settings.n_jobs or OmegaConf.select(self.config, "hydra.sweeper.n_jobs") or 1
        return int(asked)

    @property
    def pool(self) -> JobPool:
        """The jobs that run now; there within `running`."""
        assert self._pool is not None, "only while the sweep runs"
        return self._pool

    @contextmanager
    def running(
        self, on_message: Callable[[RunningJob, str, Any], None], *, wants_configs: bool = True
    ) -> Iterator[JobPool]:
        """Jobs can be started within; afterwards none of them is left.

        Args:
            on_message: See `JobPool`.
            wants_configs: Whether what a job returned is to have the configurations it ran with, as Hydra has them.
        """
        setup_globals()
        logs.set_up_terminal()
        try:
            with signals.noted(deadline_s=self.settings.deadline_s):
                method, _ = choose_start_method(self.settings.start_method)
                stop.raise_if_stop_requested()
                identity = Identity(role=Role.MAIN, run_dir=str(self.sweep_dir))
                with _main_of(identity, method), server_noted(identity, process_server.pid()):
                    self._leases = self._make_leases()
                    shared = dumps((Singleton.get_state(), self._context, self._task, wants_configs))
                    with JobPool(
                        start_method=method, shared=shared, limits=self._limits(), on_message=on_message
                    ) as self._pool:
                        yield self._pool
        finally:
            logs.tear_down()

    def compose(self, overrides: Sequence[str], *, number: int) -> DictConfig:
        """The configuration of one job."""
        return self._composer.compose(overrides, number=number)

    def folder(self, config: DictConfig) -> Path:
        """Where the job of `config` writes."""
        return self.sweep_dir / str(config.hydra.sweep.subdir)

    def try_start(self, job: Job) -> RunningJob | None:
        """Starts the job, or returns None when too few devices are free now."""
        if self._leases is None:
            return self.pool.start(job)
        lease = self._leases.try_acquire()
        if lease is None:
            return None
        return self.pool.start(job, lease=lease, environ=visible_devices_env(lease.devices))

    def renew_server(self, *, spawn: bool = False) -> None:
        """After the process server was killed: the next jobs come from a new one, or do without."""
        self.pool.start_method, _ = choose_start_method("spawn" if spawn else self.settings.start_method)

    def _limits(self) -> Limits:
        return Limits(
            timeout_min=self.settings.timeout_min,
            memory_mb=self.settings.memory_limit_mb,
            stall_timeout_s=self.settings.stall_timeout_s,
            deadline_s=self.settings.deadline_s,
        )

    def _make_leases(self) -> DeviceLeases | None:
        """None where there are no devices to share, or when all trials may see all of them."""
        pool = self.settings.device_pool
        names = [str(name) for name in pool] if pool is not None else _visible_devices()
        per_trial = self.settings.gpus_per_trial
        if per_trial == 0 or (not names and per_trial is None):
            return None
        leases = DeviceLeases(names, per_trial or 1)
        if leases.n_parallel < self.n_jobs:
            log.warning("%d trials at once, not %d: so many have devices", leases.n_parallel, self.n_jobs)
        return leases


def _visible_devices() -> list[str]:
    return [str(device.index) for device in visible(nvml_devices(), os.environ)]


def _check(settings: "TrialLauncherConf") -> None:
    least = {"n_jobs": 1, "gpus_per_trial": 0, "timeout_min": 0, "memory_limit_mb": 1, "max_failures": 1}
    values = {key: getattr(settings, key) for key in least}
    problems = [
        f"hydra.launcher.{key}: {value!r} is too small; use {least[key]} or more, or null"
        for key, value in values.items()
        if value is not None and value < least[key]
    ]
    if problems:
        raise ConfigError(*problems)


@contextmanager
def _main_of(identity: Identity, start_method: str) -> Iterator[None]:
    """This process is the main process of the sweep, and afterwards what it was before."""
    assert identity.run_dir is not None
    Path(identity.run_dir).mkdir(parents=True, exist_ok=True)
    with being_main(identity.run_dir):
        set_identity(identity)
        share_identity(identity)
        logs.set_up_files(identity)
        process_registry.register(identity, parent_pid=os.getppid(), start_method=start_method)
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            process_registry.finish(outcome_of(error))
