"""What runs in the process of one job: Hydra's job around the task function, as its own launchers do it."""

import functools
import pickle
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.types import TaskFunction
from omegaconf import DictConfig

from project.common import process_registry
from project.common.errors import ProjectError
from project.common.processes import logs, parent_link
from project.common.processes.identity import current_identity
from project.sweeps.jobs.pickling import dumps
from project.sweeps.values import plain


def run_job_process(shared: bytes, config: bytes) -> None:
    """Entry of the process; sends Hydra's `JobReturn` up, and fails as the job did.

    Args:
        shared: Pickled: Hydra's singletons, its context, the task function, and whether the configurations that the job
            ran with are wanted back; the same for all jobs of a sweep.
        config: Pickled: the job's configuration.
    """
    setup_globals()
    state, hydra_context, task_function, wants_configs = pickle.loads(shared)
    _set_singletons(state)
    returned = run_job(
        hydra_context=hydra_context,
        task_function=_with_our_logs(task_function),
        config=pickle.loads(config),
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
    if not wants_configs:
        returned.cfg = returned.hydra_cfg = None
        if returned.status is JobStatus.COMPLETED:  # the main process would import torch to read a tensor
            returned.return_value = plain(returned._return_value)
    parent_link.send("returned", _pickled(returned))
    if returned.status is JobStatus.FAILED:
        raise returned._return_value


def _set_singletons(state: dict[str, Any]) -> None:
    """As Hydra does it, but for the plugins when the process server has found them."""
    found = Singleton._instances.get(Plugins)
    if found is not None:
        state = state | {"instances": {**state["instances"], Plugins: found}}
    Singleton.set_state(state)


def _with_our_logs(task_function: TaskFunction) -> TaskFunction:
    """Hydra configures logging just before it calls the task, and that closes every handler there was."""

    @functools.wraps(task_function)
    def task(config: DictConfig) -> Any:
        identity = current_identity()
        if identity is not None:
            logs.tear_down()
            logs.set_up_files(identity)
        process_registry.set_state("running the task")
        return task_function(config)

    return task


def _pickled(returned: JobReturn) -> bytes:
    value: Any = returned._return_value
    try:
        return dumps(returned)
    except Exception as error:  # whatever an object's own pickling raises
        if returned.status is JobStatus.FAILED:
            returned.return_value = ProjectError(f"{type(value).__name__}: {value}")
            return dumps(returned)
        raise ProjectError(
            f"the job's return value ({type(value).__name__}) cannot be pickled ({error}); return numbers or plain data"
        ) from error
