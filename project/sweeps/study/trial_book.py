"""The trials of one study as they are stored: few, whole writes, each of which a killed writer leaves in order."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from project.common.files.secrets import mask_config, mask_override

# Names of the attributes that trials carry.
RUN, BEAT, END = "run", "beat", "end"
CONTINUES, FIRST_TRY, TRIES, CLONE_OF = "continues", "first_try", "tries", "clone_of"
SUPERSEDED_BY, NOT_COUNTED = "superseded_by", "not_counted"
REPEATS = "repeats"  # in `run`: number of the completed trial whose value was taken over

# What pruners of the halving kind remember of a trial's way: wrong for one that begins anew.
_RUNG = "completed_rung_"


class TrialBook:
    """Reads and writes trials, by the storage's id; knows no rules.

    Args:
        storage: As Optuna opened it.
        study_name: Of a study that is there.
    """

    def __init__(self, storage: BaseStorage, study_name: str) -> None:
        self._storage = storage
        self._study_id = storage.get_study_id_from_name(study_name)

    def all(self) -> list[FrozenTrial]:
        """All trials by number, not to be changed. Those that had ended at the last look are not read again."""
        trials: list[FrozenTrial] = self._storage.get_all_trials(self._study_id, deepcopy=False)
        return trials

    def read(self, trial_id: int) -> FrozenTrial:
        """One trial as it is stored now."""
        return self._storage.get_trial(trial_id)

    def begin(self, run: Mapping[str, Any]) -> int:
        """Adds a running trial with its owner, in one write; returns its id."""
        template = create_trial(state=TrialState.RUNNING, user_attrs={RUN: mask_run(run)})
        template.datetime_start = datetime.now()
        trial_id: int = self._storage.create_new_trial(self._study_id, template_trial=template)
        return trial_id

    def pop(self, waiting: FrozenTrial, run: Mapping[str, Any]) -> int | None:
        """Makes a waiting trial a running one, whose owner is written before; None if another has taken it."""
        try:
            self._storage.set_trial_user_attr(waiting._trial_id, RUN, mask_run(run))
            taken = self._storage.set_trial_state_values(waiting._trial_id, TrialState.RUNNING)
        except UpdateFinishedTrialError:
            return None
        return waiting._trial_id if taken else None

    def unpop(self, trial_id: int) -> None:
        """Lets a running trial that has reported nothing wait again."""
        self._storage.set_trial_state_values(trial_id, TrialState.WAITING)

    def note(self, trial_id: int, name: str, value: Any) -> bool:
        """Writes an attribute; False when the trial has ended, and takes none."""
        try:
            self._storage.set_trial_user_attr(trial_id, name, value)
        except UpdateFinishedTrialError:
            return False
        return True

    def close(self, trial_id: int, state: TrialState, values: list[float] | None = None) -> None:
        """Ends a trial without telling the sampler."""
        self._storage.set_trial_state_values(trial_id, state, values)

    def clone(self, trial: FrozenTrial, attributes: dict[str, Any]) -> int:
        """Adds a waiting trial with the parameters of `trial`, in one write; returns its number."""
        keeps = CONTINUES in attributes
        system = {key: value for key, value in trial.system_attrs.items() if keeps or not key.startswith(_RUNG)}
        template = create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs=attributes,
            system_attrs=system,
        )
        trial_id = self._storage.create_new_trial(self._study_id, template_trial=template)
        number: int = self._storage.get_trial(trial_id).number
        return number


def mask_run(run: Mapping[str, Any]) -> dict[str, Any]:
    """The attribute `run` as it may be stored."""
    masked: dict[str, Any] = mask_config(dict(run))
    if "overrides" in run:
        masked["overrides"] = [mask_override(override) for override in run["overrides"]]
    return masked


def study_of(storage: BaseStorage, study_name: str, *, sampler: Any, pruner: Any) -> optuna.Study:
    """A view of the study that has cached no trials yet."""
    return optuna.Study(study_name=study_name, storage=storage, sampler=sampler, pruner=pruner)
