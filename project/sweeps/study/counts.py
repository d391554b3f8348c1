"""How many trials of a study count, run and wait."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

from project.sweeps.study.trial_book import NOT_COUNTED, RUN, SUPERSEDED_BY


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many trials there are, by what they mean for `n_trials`.

    Args:
        complete: With a value.
        pruned: Ended early by the pruner.
        failed: For good: not tried again, and no other trial takes their place.
        running_ours: Claimed by this store.
        running_others: Claimed by other shells.
        waiting: Put back, or enqueued by the user.
        superseded: Failed, and another trial took their place.
        not_counted: Failed before they began.
    """

    complete: int = 0
    pruned: int = 0
    failed: int = 0
    running_ours: int = 0
    running_others: int = 0
    waiting: int = 0
    superseded: int = 0
    not_counted: int = 0

    @property
    def counted(self) -> int:
        """What `n_trials` is the total of."""
        return self.complete + self.pruned + self.failed

    @property
    def running(self) -> int:
        """Claimed by anybody."""
        return self.running_ours + self.running_others


def count(trials: Iterable[FrozenTrial], *, mine: Collection[int] = ()) -> Counts:
    """Counts them. What another tool runs without saying who owns it counts once it has ended."""
    found = Counter(_kind(trial, mine) for trial in trials)
    del found["foreign"]
    return Counts(**found)


def _kind(trial: FrozenTrial, mine: Collection[int]) -> str:
    match trial.state:
        case TrialState.COMPLETE:
            return "complete"
        case TrialState.PRUNED:
            return "pruned"
        case TrialState.WAITING:
            return "waiting"
        case TrialState.RUNNING if RUN in trial.user_attrs:
            return "running_ours" if trial.number in mine else "running_others"
        case TrialState.RUNNING:
            return "foreign"
    if SUPERSEDED_BY in trial.user_attrs:
        return "superseded"
    return "not_counted" if NOT_COUNTED in trial.user_attrs else "failed"
