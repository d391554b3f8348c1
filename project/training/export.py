"""Exports a checkpoint's model for those who have transformers and not this project."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from project.common.errors import CheckpointError
from project.common.managers import get_model_manager
from project.training.stored_run import StoredRun, stored_run


def export(checkpoint: Path, folder: Path, *, overrides: Mapping[str, Any] | None = None) -> Path:
    """Writes a folder that `AutoModel*.from_pretrained` opens, whole or not at all; returns it.

    Args:
        checkpoint: Written by a run of ours.
        folder: Not there yet.
        overrides: Dotted key to value, applied to the run's configuration.

    Raises:
        ProjectError: The checkpoint or a key does not fit, or the model is none of transformers.
    """
    with stored_run(checkpoint, overrides=overrides or {}) as run:
        return get_model_manager().export(folder, _model(run, checkpoint))


def _model(run: StoredRun, checkpoint: Path) -> Any:
    from transformers import PreTrainedModel

    model: Any = run.model()
    if hasattr(model, "merge_and_unload"):  # peft's
        model = model.merge_and_unload()
    if not isinstance(model, PreTrainedModel):
        raise CheckpointError(
            f"{checkpoint}: its model is a {type(model).__name__}, which transformers cannot open; "
            "load its state_dict with torch instead"
        )
    if run.labels:
        model.config.id2label = dict(enumerate(run.labels))
        model.config.label2id = {label: number for number, label in enumerate(run.labels)}
    return model
