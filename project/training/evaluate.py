"""Evaluates a checkpoint in this process, with the configuration, tokenizer and labels that it was trained with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from project.common.errors import ConfigError, DataError
from project.common.managers import get_data_manager, get_directory_manager, get_model_manager
from project.common.processes.identity import current_identity
from project.training.build import make_module, make_trainer
from project.training.callback import ProcessCallback
from project.training.datamodule import DataModule
from project.training.predictions import write_predictions
from project.training.report import table_rows
from project.training.stored_run import stored_run


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
    with stored_run(checkpoint, overrides=overrides or {}) as run:
        return _evaluate(run.state, run.config, split=split)


def _evaluate(state: dict[str, Any], config: dict[str, Any], *, split: str) -> dict[str, Any]:
    facts = state["run"]
    data = get_data_manager()
    if data.labels != facts["labels"]:
        raise DataError(
            f"task.data: the labels are {_short(data.labels)}, and the checkpoint's are {_short(facts['labels'])}; "
            "use data with the same labels"
        )
    if not data.n_rows(split):
        raise ConfigError(f"split: {split!r} has no rows; there are {', '.join(data.splits)}")
    module = make_module(config, described=facts.get("model"))
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
