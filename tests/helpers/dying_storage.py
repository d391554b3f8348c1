"""A storage whose process is killed after so many writes: from then on nothing is read or written."""

from collections.abc import Callable
from typing import Any

from optuna.storages import BaseStorage

WRITES = ("create_new_trial", "set_trial_param", "set_trial_state_values", "set_trial_intermediate_value")
WRITES += ("set_trial_user_attr", "set_trial_system_attr")


class KilledError(BaseException):
    """Stands for SIGKILL: nothing of ours may catch it and go on."""


class DyingStorage(BaseStorage):
    """Passes everything on to another storage, and counts the writes to trials.

    Args:
        inner: Lives on.
    """

    def __init__(self, inner: BaseStorage) -> None:
        self._inner = inner
        self.n_writes = 0
        self.dies_after: int | None = None


def _passed_on(name: str) -> Callable[..., Any]:
    def call(self: DyingStorage, *args: Any, **kwargs: Any) -> Any:
        if self.dies_after is not None and self.n_writes >= self.dies_after:
            raise KilledError
        self.n_writes += name in WRITES
        return getattr(self._inner, name)(*args, **kwargs)

    return call


for _name in BaseStorage.__abstractmethods__ | {
    "get_trial_id_from_study_id_trial_number",
    "get_trial_number_from_id",
    "get_trial_param",
    "get_trial_params",
    "get_trial_user_attrs",
    "get_trial_system_attrs",
    "get_n_trials",
    "get_best_trial",
}:
    setattr(DyingStorage, _name, _passed_on(_name))
DyingStorage.__abstractmethods__ = frozenset()
