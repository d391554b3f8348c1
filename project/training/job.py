"""A job of a multirun that another launcher than ours runs: its folder is Hydra's, and its error ends it alone."""

import multiprocessing
import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from project.common.errors import ChildFailedError, ConfigError
from project.common.live_runs import pointed_runs
from project.common.processes import linux, mp_internals, stop, strays, tree_folder
from project.common.processes.outcome import Outcome, Status

LOOK_EVERY_S = 0.5
DAEMONIC = (
    "hydra.launcher: its processes are daemonic and may start none; use hydra.launcher.backend=loky for joblib, or "
    "hydra/launcher=trials"
)


def is_job() -> bool:
    """Whether Hydra runs the task function as one of several jobs."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    return HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN


def job_folder() -> Path | None:
    """The folder that Hydra gives to this job; None for a single run, which chooses its own."""
    from hydra.core.hydra_config import HydraConfig

    return Path(HydraConfig.get().runtime.output_dir) if is_job() else None


def raise_failure(outcome: Outcome) -> None:
    """Raises for a job that crashed, which Hydra notes as its failure.

    An exit would end the launcher's process and all other jobs in it. One that was asked to stop ends so, where it runs
    in that very process; Hydra cannot send an exit from another one.
    """
    if outcome.status is Status.CRASHED or (outcome.exit_code and _is_child()):
        raise ChildFailedError(outcome.cause or "it failed")


def _is_child() -> bool:
    return multiprocessing.parent_process() is not None


@contextmanager
def bound_to_launcher() -> Iterator[None]:
    """Within, the job is asked to stop when the launcher's main process goes, whose pool would not notice for minutes.

    Raises:
        ConfigError: This process may start none, as those of a pool of the standard library.
    """
    if multiprocessing.current_process().daemon:
        raise ConfigError(DAEMONIC)
    if not is_job() or not _is_child():
        yield
        return
    launcher, done = os.getppid(), threading.Event()
    watch = threading.Thread(target=_end_with, args=(launcher, done), name="launcher-watch", daemon=True)
    watch.start()
    try:
        yield
    except stop.StopRequested as stopped:
        raise ChildFailedError(stopped.request.reason) from stopped
    finally:
        done.set()
        watch.join()
        if os.getppid() != launcher:
            os._exit(1)  # nobody waits for the result


def _end_with(launcher: int, done: threading.Event) -> None:
    while not done.wait(LOOK_EVERY_S):
        if os.getppid() != launcher:
            os.kill(os.getpid(), signal.SIGTERM)
            return


@contextmanager
def requests_passed_on() -> Iterator[None]:
    """In the main process of a multirun: within, requests to stop reach jobs that run in processes of a launcher.

    Those carry the mark of this tree, so that none of them outlives it.
    """
    read, write = os.pipe()
    os.environ[strays.MARK] = tree_folder.own_mark(mp_internals.use_tree_folder())
    with stop.woken() as wake:
        passer = threading.Thread(target=_pass_on, args=(wake, read), name="passes-requests-on", daemon=True)
        passer.start()
        try:
            yield
        finally:
            os.close(write)
            passer.join()
            os.close(read)
            del os.environ[strays.MARK]


def _pass_on(wake: int, end: int) -> None:
    while end not in (ready := select.select([wake, end], [], [])[0]):
        if wake in ready:
            os.read(wake, 4096)
            _ask_jobs_to_stop()


def _ask_jobs_to_stop() -> None:
    """Each is the main process of its own run, and a child of this process."""
    import psutil

    children = {child.pid for child in psutil.Process().children()}
    for run in pointed_runs():
        if run.main.is_alive() and run.main.pid in children:
            linux.kill_process(run.main.pid, run.main.start_time, with_signal=signal.SIGTERM)
