"""How many failures a sweep bears, and how they are told."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from project.common.files.layout import RunLayout
from project.common.processes.outcome import Outcome, Status
from project.sweeps.jobs.job import Ended
from project.sweeps.jobs.job_pool import JobPool
from project.training import report

if TYPE_CHECKING:
    from project.sweeps.plugins import TrialLauncherConf

log = logging.getLogger(__name__)

FAILURES = (Status.CRASHED, Status.REFUSED)


class FailureLimit:
    """Counts the failures of this launch.

    Args:
        settings: Its `fail_fast` and `max_failures`.
    """

    def __init__(self, settings: "TrialLauncherConf") -> None:
        self._key = "fail_fast" if settings.fail_fast else "max_failures"
        self._most = 1 if settings.fail_fast else settings.max_failures
        self._n = 0

    def count(self, outcome: Outcome) -> None:
        """Counts a job if it has failed."""
        self._n += outcome.status in FAILURES

    def slots_taken(self, pool: JobPool, *, must_know: bool = False) -> int:
        """How many jobs keep others from beginning.

        What one that has ended left takes no slot while it is being ended; but where a failure may be the last that is
        borne, it is known to be one only then.

        Args:
            must_know: Somebody else counts failures, too.
        """
        return pool.n_busy if self._most is None and not must_know else len(pool.running)

    @property
    def is_reached(self) -> bool:
        """Whether nothing more is to be started."""
        return self._most is not None and self._n >= self._most

    @property
    def text(self) -> str:
        """For people."""
        return f"hydra.launcher.{self._key}: {self._n} failed"


def write_end(folder: Path, outcome: Outcome, *, name: str, result: Any, facts: dict[str, Any]) -> None:
    """Writes how a job ended into its folder; that it could not be is said, and no reason to lose the rest."""
    try:
        report.write_end(RunLayout(folder), outcome, result=result, facts=facts)
    except OSError as error:
        log.warning("%s: how it ended could not be written to %s (%s)", name, folder, error)


def say_failures(jobs: Iterable[Ended]) -> None:
    """Lists the jobs that failed, each with its cause and folder."""
    failed = [job for job in jobs if job.outcome.status in FAILURES]
    if failed:
        log.error("%d failed:", len(failed))
    for one in sorted(failed, key=lambda one: one.job.number):
        log.error("  #%d: %s (%s)", one.job.number, one.outcome.cause, one.job.folder)
