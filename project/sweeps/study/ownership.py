"""Whose a running trial is, and whether its owner is dead: at once on this machine, by its beat on others."""

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from project.common.processes.identity import ProcessKey
from project.sweeps.study.trial_book import BEAT, RUN

BEAT_S = 15.0
STALE_S = 60.0

# The stores that live in this process: a notebook may open one after another.
_open_stores: set[str] = set()


@dataclass(kw_only=True)
class Ownership:
    """This store as an owner of trials, and what it can tell of others.

    Args:
        key: The process.
        clock: Seconds since the epoch, on all machines.
    """

    key: ProcessKey = field(default_factory=ProcessKey.own)
    clock: Callable[[], float] = time.time
    store: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    mine: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        _open_stores.add(self.store)

    def close(self) -> None:
        """From now on what this store left running belongs to nobody."""
        _open_stores.discard(self.store)

    def claim(self) -> dict[str, Any]:
        """The beginning of the attribute `run`."""
        return {"owner": asdict(self.key), "store": self.store, "claimed": self.clock()}

    def is_dead(self, trial: FrozenTrial) -> bool:
        """Whether a trial is running for nobody. One that another tool began, without an owner, is left to that."""
        run = trial.user_attrs.get(RUN)
        if trial.state is not TrialState.RUNNING or run is None:
            return False
        owner = ProcessKey(**run["owner"])
        if owner == self.key:
            return not self._is_open(run["store"], trial.number)
        if owner.is_local():
            return not owner.is_alive()
        return self.clock() - max(trial.user_attrs.get(BEAT, 0.0), run["claimed"]) > STALE_S

    def _is_open(self, store: str, number: int) -> bool:
        # One of ours that was never handed out: its claim was cut off by an outage.
        return number in self.mine if store == self.store else store in _open_stores

    def describe(self, trial: FrozenTrial) -> str:
        """Words for the owner of a trial."""
        owner = trial.user_attrs[RUN]["owner"]
        return f"process {owner['pid']} on {owner['host']}"
