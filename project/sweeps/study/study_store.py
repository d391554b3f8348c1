"""The study of a sweep: claims trials, keeps what became of them, and takes up what dead owners left.

Several shells may work on one study. One thread of each uses its store.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, Trial, TrialState

from project.common.files.secrets import mask_text
from project.sweeps.study.claiming import Claims, Suggest
from project.sweeps.study.connecting import disconnect
from project.sweeps.study.counts import Counts, count
from project.sweeps.study.opening import OpenedStudy, open_study
from project.sweeps.study.ownership import Ownership
from project.sweeps.study.patience import is_outage
from project.sweeps.study.taking_up import Superseded, ValuesOf, completed_values, going_on
from project.sweeps.study.telling import Teller, checked_values
from project.sweeps.study.trial_book import BEAT, NOT_COUNTED, TRIES, TrialBook

log = logging.getLogger(__name__)

T = TypeVar("T")
STORAGE_TIMEOUT_S = 300.0


class StudyStore:
    """All that a sweep asks of its study. Every call waits while the storage does not answer.

    Args:
        opened: The study.
        sweep_dir: The sweep's folder; trials' folders are relative to it.
        ownership: Who we are.
        values_of: The values of a run that completed, from its folder; None if it has not.
    """

    @classmethod
    def open(
        cls,
        storage: Any,
        *,
        study_name: str,
        sweep_dir: Path,
        directions: list[str],
        sampler: Any,
        pruner: Any,
        storage_timeout_s: float = STORAGE_TIMEOUT_S,
        clock: Callable[[], float] = time.time,
    ) -> "StudyStore":
        """Opens the study, or makes it; several shells may do so at once.

        Args:
            storage: Address, storage of Optuna's, or None for a file in the sweep's folder.
            study_name: Unique in the storage.
            sweep_dir: Absolute.
            directions: `minimize` or `maximize`, one for each objective.
            sampler: Optuna's.
            pruner: Optuna's.
            storage_timeout_s: How long the storage may not answer.
            clock: Seconds since the epoch, the same on all machines.

        Raises:
            ConfigError: The storage cannot be opened, or keeps another study under this name.
        """
        ownership = Ownership(clock=clock)
        opened = open_study(
            storage,
            study_name=study_name,
            sweep_dir=sweep_dir,
            directions=directions,
            strategy={"sampler": sampler, "pruner": pruner},
            timeout_s=storage_timeout_s,
            running=lambda: sorted(ownership.mine),
        )
        return cls(opened, sweep_dir=sweep_dir, ownership=ownership)

    def __init__(
        self, opened: OpenedStudy, *, sweep_dir: Path, ownership: Ownership, values_of: ValuesOf = completed_values
    ) -> None:
        self.study = opened.study
        self.url_masked = opened.place.shown
        self._patience, self._section, self._ownership = opened.patience, opened.section, ownership
        self._storage, self.sweep_dir = opened.storage, sweep_dir
        self._book = TrialBook(opened.storage, opened.study.study_name)
        self._claims = Claims(opened, book=self._book, ownership=ownership, sweep_dir=sweep_dir, values_of=values_of)
        self._teller = Teller(opened.study, self._book, opened.section)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keeps other shells from claiming, closing and cloning."""
        with self._section.held():
            yield

    def take_up(self) -> list[Superseded]:
        """Closes the trials of dead owners: told if they had completed, cloned if not."""
        return self._patience.call(self._claims.take_up)

    def claim(self, n_trials: int, suggest: Suggest) -> Trial | None:
        """A trial to run, one that waits before a new one; None when `n_trials` have ended or are running.

        Args:
            n_trials: In total, over all shells and starts.
            suggest: Fills the trial in; returns its `folder` and `overrides`. May be called again after an outage.
        """
        return self._patience.call(lambda: self._claims.claim(n_trials, suggest))

    def progress(self) -> Counts:
        """How many trials there are of each kind."""
        return self._patience.call(lambda: count(self._book.all(), mine=self._ownership.mine))

    def beat(self, trials: Iterable[Trial]) -> list[int]:
        """Says that we live, for other machines; returns the trials that another shell has closed meanwhile.

        One attempt: the next beat follows soon, and the children must not wait for it.
        """
        closed = []
        try:
            for trial in trials:
                if not self._book.note(trial._trial_id, BEAT, self._ownership.clock()):
                    closed.append(trial.number)
        except Exception as error:
            if not is_outage(error):
                raise
            log.debug("no beat: %s", error)
        return closed

    def report(self, trial: Trial, value: float, step: int) -> bool:
        """Keeps an intermediate value; whether the trial should be pruned, or was closed by another shell."""
        if len(self.study.directions) > 1:
            return False
        return self._patience.call(lambda: self._report(trial, value, step))

    def complete(self, trial: Trial, values: float | Sequence[float], end: Mapping[str, Any]) -> None:
        """Tells the values.

        Raises:
            ValueError: They are no numbers, not as many as there are objectives, or NaN.
        """
        checked = checked_values(trial.number, values, n_objectives=len(self.study.directions))
        self._tell(trial, TrialState.COMPLETE, end, values=checked)

    def prune(self, trial: Trial, end: Mapping[str, Any]) -> None:
        """Ends a trial that the pruner does not want."""
        self._tell(trial, TrialState.PRUNED, end)

    def fail(self, trial: Trial, end: Mapping[str, Any], *, retry: bool) -> int | None:
        """Ends a trial that crashed. With `retry` a clone that begins anew takes its place; its number is returned."""
        if not retry:
            self._tell(trial, TrialState.FAIL, end)
            return None
        return self._replace(trial, end, lambda stored: {TRIES: stored.user_attrs.get(TRIES, 0) + 1})

    def put_back(self, trial: Trial, end: Mapping[str, Any]) -> int:
        """Ends a trial that was interrupted; a clone that goes on from its checkpoint waits. Returns its number."""
        return self._replace(trial, end, lambda stored: going_on(stored, end.get("checkpoint")))

    def not_counted(self, trial: Trial, why: str) -> None:
        """Ends a trial that says nothing about its point, since it was refused before it began."""

        def close() -> None:
            with self._section.held():
                if self._book.note(trial._trial_id, NOT_COUNTED, mask_text(why)):
                    self._book.close(trial._trial_id, TrialState.FAIL)

        self._ended(trial, close)

    def close(self) -> None:
        """Closes all connections; what is still running here belongs to nobody from now on."""
        self._ownership.close()
        self._section.close()
        disconnect(self._storage)

    def _report(self, trial: Trial, value: float, step: int) -> bool:
        try:
            trial.report(value, step)
        except UpdateFinishedTrialError:
            log.warning("trial %d was closed by another process; it is stopped here", trial.number)
            return True
        return trial.should_prune()

    def _tell(
        self, trial: Trial, state: TrialState, end: Mapping[str, Any], *, values: list[float] | None = None
    ) -> None:
        def tell() -> None:
            with self._section.held():
                self._teller.tell(trial, state, end, values=values)

        self._ended(trial, tell)

    def _replace(
        self, trial: Trial, end: Mapping[str, Any], attributes: Callable[[FrozenTrial], dict[str, Any]]
    ) -> int:
        def replace() -> int:
            with self._section.held():
                return self._teller.replace(trial, end, attributes)

        return self._ended(trial, replace)

    def _ended(self, trial: Trial, action: Callable[[], T]) -> T:
        value = self._patience.call(action)
        self._ownership.mine.discard(trial.number)
        return value
