"""A run as its checkpoint has it: configuration, tokenizer, labels and model, to be used without training anew."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from project.common.config_check import check_heavy, check_light
from project.common.config_origin import references
from project.common.errors import CheckpointError, ConfigError
from project.common.files.checkpoint_file import load_checkpoint_file
from project.common.managers import cleanup_managers, get_model_manager, get_tokenizer_manager, initialize_factory
from project.common.managers.model import without_prefix
from project.common.processes.identity import Identity, Role, current_identity, set_identity
from project.training.build import quiet_libraries


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """What a checkpoint holds.

    Args:
        state: The checkpoint.
        config: Of the run, with what was typed; plain.
        labels: The classes, in the order of the logits; empty without any.
    """

    state: dict[str, Any]
    config: dict[str, Any]
    labels: list[str]

    def model(self) -> nn.Module:
        """Builds the model with its weights, on the CPU; no training data is needed."""
        models = get_model_manager()
        module = models.build(n_labels=len(self.labels) or None, described=self.state["run"].get("model"))
        weights = without_prefix(self.state["state_dict"], "model.")
        models.check_fits(module, weights, path="ckpt")
        module.load_state_dict(weights)
        return module.eval()


@contextmanager
def stored_run(checkpoint: Path, *, overrides: Mapping[str, Any]) -> Iterator[StoredRun]:
    """Makes this process a rank of the run that wrote a checkpoint: its managers, with its tokenizer.

    Args:
        checkpoint: Written by a run of ours.
        overrides: Dotted key to value, applied to the run's configuration.

    Raises:
        ProjectError: The checkpoint or a key does not fit; says which.
    """
    quiet_libraries()
    state = load_checkpoint_file(checkpoint)
    facts = state.get("run")
    if not isinstance(facts, dict) or "config" not in facts:
        raise CheckpointError(f"{checkpoint}: has no configuration; only checkpoints of this project can be evaluated")
    # The checkpoint's weights replace those that the training began with, whose file may be gone.
    config = apply_overrides(facts["config"], {"managers.model.init_from": None, **overrides})
    problems = [*check_light(config), *check_heavy(config)]
    if problems:
        raise ConfigError(*problems)
    before = current_identity()
    set_identity(Identity(role=Role.RANK, rank=0, run_dir=_run_dir(checkpoint)))
    try:
        initialize_factory(config)
        if facts["tokenizer"] is not None:
            get_tokenizer_manager().from_bytes(facts["tokenizer"])
        yield StoredRun(state=state, config=config, labels=list(facts["labels"]))
    finally:
        cleanup_managers()
        set_identity(before)


def _run_dir(checkpoint: Path) -> str | None:
    """The run's folder if the checkpoint is still in it; a lone file gets a new run's folder."""
    folder = checkpoint.resolve().parent.parent
    return str(folder) if (folder / "config.yaml").is_file() else None


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
