"""What all ranks do at the same step: agreed on by one small all-reduce, seldom enough to cost nothing."""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

# The share of a step's time that agreeing may take, and how long a request may wait for the next agreement.
MAX_SHARE = 0.01
MAX_WAIT_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the ranks do now.

    Args:
        exit_code: Stop with this code; 0 goes on.
        save: Write a checkpoint.
        prune: End this trial of a sweep early.
    """

    exit_code: int = 0
    save: bool = False
    prune: bool = False


NOTHING = Decision()


class Agreement:
    """Asked by every rank at the same steps; answers the same to all."""

    def __init__(self, world_size: int) -> None:
        self._alone = world_size == 1
        self._every = 1
        self._next = 0
        self._cost_s = float("inf")
        self._last: tuple[int, float] | None = None

    def decide(self, step: int, *, exit_code: int, save: bool, prune: bool = False, must: bool = False) -> Decision:
        """Agrees, if it is time to.

        Args:
            step: Optimizer steps done, equal on all ranks.
            exit_code: What this rank was asked to stop with; 0 when it was not.
            save: Whether this rank finds a checkpoint due.
            prune: Whether this rank was told that the trial ends early.
            must: Agree now, whatever it costs. All ranks must say so.
        """
        if self._alone:
            return Decision(exit_code=exit_code, save=save, prune=prune) if exit_code or save or prune else NOTHING
        if step < self._next and not must:
            return NOTHING
        started = time.monotonic()
        wish = torch.tensor([exit_code, int(save), int(prune), self._wished_interval(step, started)])
        dist.all_reduce(wish, op=dist.ReduceOp.MAX)
        # The shortest one yet is the cost itself; in the others this rank waited for slower ranks.
        self._cost_s = min(self._cost_s, time.monotonic() - started)
        code, due, pruned, self._every = (int(value) for value in wish)
        self._next = step + self._every
        return Decision(exit_code=code, save=bool(due), prune=bool(pruned))

    def _wished_interval(self, step: int, now: float) -> int:
        last, self._last = self._last, (step, now)
        if last is None or step <= last[0]:
            return 1
        step_s = max((now - last[1]) / (step - last[0]), 1e-6)
        affordable = self._cost_s / (MAX_SHARE * step_s)
        return max(1, min(int(affordable), int(MAX_WAIT_S / step_s)))
