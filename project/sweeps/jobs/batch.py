"""A plain list of jobs, for Hydra's own sweepers: all are run, a free slot is filled at once."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException

from project.common.errors import ChildFailedError, ConfigError
from project.common.files.atomic import atomic_file
from project.common.files.layout import RunLayout
from project.common.files.secrets import mask_config, mask_override
from project.common.processes import logs, stop
from project.common.processes.handover import SweepInfo
from project.common.processes.outcome import Status
from project.sweeps.jobs.endings import FailureLimit, say_failures, write_end
from project.sweeps.jobs.job import Ended, Job
from project.sweeps.jobs.launcher import JobLauncher

log = logging.getLogger(__name__)

WAIT_S = 1.0


def launch_all(
    launcher: JobLauncher, job_overrides: Sequence[Sequence[str]], *, initial_job_idx: int
) -> list[JobReturn]:
    """Runs the jobs and returns what Hydra expects of each, in their order.

    Raises:
        ChildFailedError: As many have failed as `fail_fast` and `max_failures` bear; the rest was not started.
    """
    logs.set_up_terminal()
    mask_written_config(launcher.sweep_dir)
    limit = FailureLimit(launcher.settings)
    log.info("%d jobs, %d at once", len(job_overrides), launcher.n_jobs)
    numbers = range(initial_job_idx, initial_job_idx + len(job_overrides))
    waiting = [_job(launcher, overrides, number) for number, overrides in zip(numbers, job_overrides, strict=True)]
    _require_own_folders(waiting)
    ended: dict[int, Ended] = {}
    with launcher.running(on_message=lambda job, kind, data: None) as pool:
        while waiting or pool.running:
            is_stopping = stop.stop_request() is not None or limit.is_reached
            while waiting and not is_stopping and limit.slots_taken(pool) < launcher.n_jobs:
                if launcher.try_start(waiting[0]) is None:
                    break
                waiting.pop(0)
            if is_stopping and not pool.running:
                break
            for one in pool.turn(WAIT_S):
                ended[one.job.number] = one
                limit.count(one.outcome)
                facts = {"seconds": one.seconds, "job": one.job.number}
                write_end(one.job.folder, one.outcome, name=f"#{one.job.number}", result=one.result, facts=facts)
                if one.is_servers_fault:
                    launcher.renew_server()
        say_failures(ended.values())
        log.info("%d of %d jobs completed: %s", _n_completed(ended), len(job_overrides), launcher.sweep_dir)
    stop.raise_if_stop_requested()
    if limit.is_reached and waiting:
        raise ChildFailedError(f"{limit.text}; {len(waiting)} of {len(job_overrides)} jobs were not started")
    return [_returned(ended[number]) for number in numbers]


def mask_written_config(sweep_dir: Path) -> None:
    """Hydra's sweeper has just written the configuration there, and everything that was typed, as it was."""
    written = sweep_dir / "multirun.yaml"
    if written.is_file():
        config = mask_config(yaml.safe_load(written.read_text(encoding="utf-8")))
        settings = config["hydra"]
        settings["overrides"] = {name: list(map(mask_override, given)) for name, given in settings["overrides"].items()}
        settings["job"]["override_dirname"] = None  # the same once more, in one text
        with atomic_file(written) as file:
            yaml.safe_dump(config, file, sort_keys=False, allow_unicode=True)


def _job(launcher: JobLauncher, overrides: Sequence[str], number: int) -> Job:
    try:
        config = launcher.compose(overrides, number=number)
    except HydraException as error:
        raise ConfigError(" ".join(str(error).split())) from error
    log.info("#%d: %s", number, " ".join(overrides))
    folder = launcher.folder(config)
    folder.mkdir(parents=True, exist_ok=True)
    sweep = SweepInfo(study=folder.parent.name, n_parallel=launcher.n_jobs)
    return Job(number=number, config=config, folder=folder, sweep=sweep)


def _n_completed(ended: Mapping[int, Ended]) -> int:
    return sum(one.outcome.status is Status.COMPLETED for one in ended.values())


def _require_own_folders(jobs: Sequence[Job]) -> None:
    numbers: dict[Path, int] = {}
    for job in jobs:
        if RunLayout(job.folder).config.exists():
            raise ConfigError(f"{job.folder} holds another run; give another hydra.sweep.dir or hydra.sweep.subdir")
        other = numbers.setdefault(job.folder, job.number)
        if other != job.number:
            raise ConfigError(
                f"hydra.sweep.subdir: jobs {other} and {job.number} would both write to {job.folder}; "
                "use one that differs, such as ${hydra.job.num}"
            )


def _returned(ended: Ended) -> JobReturn:
    """What the job sent; one that could not is failed by us."""
    sent = ended.returned
    if sent is not None and (ended.outcome.status is Status.COMPLETED or sent.status is JobStatus.FAILED):
        return sent
    returned = JobReturn()
    returned.status = JobStatus.FAILED
    returned.return_value = ChildFailedError(f"job {ended.job.number}: {ended.outcome.cause}")
    returned.overrides = list(ended.job.config.hydra.overrides.task)
    return returned
