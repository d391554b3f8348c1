"""Evaluates a checkpoint in this process, with the configuration, tokenizer and labels that it was trained with."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from project.common.config_check import check_heavy, check_light
from project.common.config_origin import references
from project.common.errors import CheckpointError, ConfigError, DataError
from project.common.files.checkpoint_file import load_checkpoint_file
from project.common.managers import (
    cleanup_managers,
    get_data_manager,
    get_directory_manager,
    get_model_manager,
    get_tokenizer_manager,
    initialize_factory,
)
from project.common.processes.identity import Identity, Role, current_identity, set_identity
from project.training.build import make_module, make_trainer, quiet_libraries
from project.training.callback import ProcessCallback
from project.training.datamodule import DataModule
from project.training.predictions import write_predictions
from project.training.report import table_rows

log = logging.getLogger(__name__)


def evaluate(checkpoint: Path, *, split: str = "test", overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Computes the metrics on a split and writes `predictions.parquet`.

    Args:
        checkpoint: Written by a run of ours.
        split: `train`, `val` or `test`.
        overrides: Dotted key to value, applied to the run's configuration.

    Returns:
        `metrics`, `rows` of the table, and `predictions`, the path of the file.

    Raises:
        ProjectError: The checkpoint, a key or the data does not fit; says which.
    """
    quiet_libraries()
    state = load_checkpoint_file(checkpoint)
    facts = state.get("run")
    if not isinstance(facts, dict) or "config" not in facts:
        raise CheckpointError(f"{checkpoint}: has no configuration; only checkpoints of this project can be evaluated")
    config = apply_overrides(facts["config"], overrides or {})
    problems = [*check_light(config), *check_heavy(config)]
    if problems:
        raise ConfigError(*problems)
    before = current_identity()
    set_identity(Identity(role=Role.RANK, rank=0, run_dir=_run_dir(checkpoint)))
    try:
        initialize_factory(config)
        return _evaluate(state, config, split=split)
    finally:
        cleanup_managers()
        set_identity(before)


def _run_dir(checkpoint: Path) -> str | None:
    """The run's folder if the checkpoint is still in it; a lone file gets a new run's folder."""
    folder = checkpoint.resolve().parent.parent
    return str(folder) if (folder / "config.yaml").is_file() else None


def _evaluate(state: dict[str, Any], config: dict[str, Any], *, split: str) -> dict[str, Any]:
    facts = state["run"]
    if facts["tokenizer"] is not None:
        get_tokenizer_manager().from_bytes(facts["tokenizer"])
    data = get_data_manager()
    if data.labels != facts["labels"]:
        raise DataError(
            f"task.data: the labels are {_short(data.labels)}, and the checkpoint's are {_short(facts['labels'])}; "
            "use data with the same labels"
        )
    if not data.n_rows(split):
        raise ConfigError(f"split: {split!r} has no rows; there are {', '.join(data.splits)}")
    module = make_module(config)
    weights = state["state_dict"]
    get_model_manager().check_fits(module, weights, path="ckpt")
    module.load_state_dict(weights)
    module.predictions = []
    identity = current_identity()
    assert identity is not None
    trainer = make_trainer(
        config,
        identity=identity,
        callbacks=[ProcessCallback(config=config, checkpoints=None)],
        loggers=[],
        accumulation=1,
    )
    datamodule = DataModule(loader=config["loader"], seed=config["seed"], test_split=split)
    trainer.test(module, datamodule=datamodule, verbose=False)
    metrics = {f"{split}/{name.partition('/')[2]}": value for name, value in module.latest["test"].items()}
    path = get_directory_manager().place("predictions.parquet")
    write_predictions(path, module, split=split, labels=facts["labels"])
    return {"metrics": metrics, "rows": table_rows(metrics, name=type(module.model).__name__), "predictions": str(path)}


def _short(labels: list[str]) -> str:
    return f"{', '.join(labels[:5])}{', …' if len(labels) > 5 else ''} ({len(labels)})"


def apply_overrides(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a resolved configuration with new values, also where managers had taken them from elsewhere.

    Raises:
        ConfigError: A key that is not there.
    """
    from omegaconf import OmegaConf

    changed = OmegaConf.create(dict(config))
    unknown = [key for key in overrides if _is_missing(changed, key)]
    if unknown:
        raise ConfigError(*(f"{key}: is not in the run's configuration; see its config.yaml" for key in unknown))
    for key, value in overrides.items():
        OmegaConf.update(changed, key, value, merge=False)
    for key, source in references():
        if any(source == o or source.startswith(f"{o}.") or o.startswith(f"{source}.") for o in overrides):
            OmegaConf.update(changed, key, OmegaConf.select(changed, source), merge=False)
    plain = OmegaConf.to_container(changed, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _is_missing(config: Any, key: str) -> bool:
    from omegaconf import OmegaConf

    missing = object()
    return OmegaConf.select(config, key, default=missing, throw_on_missing=False) is missing
