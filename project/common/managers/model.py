"""Models: built from the configuration, saved and loaded as checkpoints that can be trusted, exported."""

import inspect
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from project.common.errors import CheckpointError, ConfigError, refused_by
from project.common.files import model_files
from project.common.files.atomic import TEMPORARY_MARK
from project.common.files.checkpoint_file import is_intact, load_checkpoint_file, save_checkpoint_file
from project.common.managers.base import BaseProcessManager, Health
from project.common.processes.identity import Role
from project.common.whitelist import instantiate

if TYPE_CHECKING:
    from torch import nn

    from project.common.managers.cuda import CUDAManager
    from project.common.managers.directory import DirectoryManager
    from project.common.managers.tokenizer import TokenizerManager

log = logging.getLogger(__name__)

_NUMBERS_OF_CLASSES = ("n_labels", "num_labels")
_SHOWN = 3  # mismatching parameters named in an error


class ModelManager(BaseProcessManager):
    """Builds this process's model and owns what is written of it.

    Args:
        model: Node with a `_target_` that returns a module; sizes that come from the data (`vocab_size`, `n_labels` or
            `num_labels`, `pad_token_id`) are passed where it has such a parameter.
        init_from: Checkpoint whose weights the model starts with; optimizer and counters start afresh. None: none.
        compile: `torch.compile` the model, in place.
        gradient_checkpointing: Compute activations a second time in the backward pass instead of keeping them.
        freeze: Patterns of parameters that are not trained, such as `*embeddings*`.
        lora: Arguments of `peft.LoraConfig`, or None to train all weights.
    """

    name = "model"
    roles = frozenset({Role.RANK})

    def __init__(
        self,
        *,
        directory: "DirectoryManager",
        cuda: "CUDAManager",
        tokenizer: "TokenizerManager | None" = None,
        model: Mapping[str, Any],
        init_from: str | None = None,
        compile: bool = False,
        gradient_checkpointing: bool = False,
        freeze: Sequence[str] = (),
        lora: Mapping[str, Any] | None = None,
    ) -> None:
        self._directory = directory
        self._cuda = cuda
        self._tokenizer = tokenizer if tokenizer is not None and tokenizer.is_configured else None
        self._model = dict(model)
        self._init_from = init_from
        self._compile = compile
        self._gradient_checkpointing = gradient_checkpointing
        self._freeze = tuple(freeze)
        self._lora = lora

    def check(self) -> Health:
        """The model's target is known, and `init_from` is there."""
        if self._init_from is not None and not Path(self._init_from).exists():
            return Health(ok=False, reason=f"managers.model.init_from: {self._init_from} does not exist")
        return Health(ok=True, reason=str(self._model.get("_target_")))

    def build(self, *, n_labels: int | None = None, described: Mapping[str, str] | None = None) -> "nn.Module":
        """A new module on the CPU, in this process's own memory; seed before.

        Args:
            n_labels: Classes; None when rows have no label.
            described: What `describe` said of a model whose weights will be loaded. One that began with weights of
                somebody else is made from this, since their files may be gone.
        """
        make = instantiate(self._model, _partial_=True)
        if n_labels is None and (name := _needed_size(make)):
            raise ConfigError(
                f"task.data.columns.label: null leaves no classes, but {self._model['_target_']} needs {name}; "
                "name the column, or choose a model without classes"
            )
        with refused_by("task.model"):
            if described is not None and str(self._model["_target_"]).endswith("from_pretrained"):
                module = model_files.from_description(described)
            else:
                module = make(**_accepted(make, self._sizes(n_labels)))
        if not hasattr(module, "state_dict"):
            raise ConfigError(
                f"task.model: {self._model['_target_']} returned {module!r:.100}; it must return a torch.nn.Module"
            )
        if self._init_from is not None:
            self.load_weights(module, self._init_from)
        self._check_vocabulary(module)
        if self._gradient_checkpointing:
            _enable_gradient_checkpointing(module)
        freeze(module, self._freeze)
        if self._lora is not None:
            module = _with_lora(module, self._lora)
        if self._compile:
            module.compile()
        return module

    def _sizes(self, n_labels: int | None) -> dict[str, Any]:
        sizes: dict[str, Any] = dict.fromkeys(_NUMBERS_OF_CLASSES, n_labels) if n_labels is not None else {}
        if self._tokenizer is not None:
            sizes |= {"vocab_size": self._tokenizer.vocab_size, "pad_token_id": self._tokenizer.pad_token_id}
        return sizes

    def _check_vocabulary(self, module: Any) -> None:
        embeddings = getattr(module, "get_input_embeddings", lambda: None)()
        n_known = getattr(embeddings, "num_embeddings", None)
        if self._tokenizer is not None and n_known is not None and n_known < self._tokenizer.vocab_size:
            raise ConfigError(
                f"task.model: knows {n_known} tokens, and the tokenizer has {self._tokenizer.vocab_size}; weights want "
                "the tokenizer that they were trained with: managers/tokenizer=pretrained"
            )

    def save(self, path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
        """Writes a checkpoint: whole or not at all, with a checksum, flushed to disk.

        Raises:
            StorageError: It could not be written; what was there is intact.
        """
        save_checkpoint_file(path, state)

    def load(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Content of a checkpoint, on the CPU, its checksum verified.

        Raises:
            CheckpointError: Missing, damaged, or holding more than tensors and plain containers.
        """
        return load_checkpoint_file(path)

    def newest_intact(self) -> Path | None:
        """The checkpoint to go on from, in this run's folder: `last`, or `best` where that one is damaged."""
        layout = self._directory.layout
        for path in (layout.checkpoint("last"), layout.checkpoint("best")):
            if path.exists():
                if is_intact(path):
                    return path
                log.warning("%s is damaged and passed over", path)
        return None

    def load_weights(self, module: "nn.Module", path: str | os.PathLike[str]) -> None:
        """Gives `module` the weights in a checkpoint of ours, or of any other with a `state_dict`."""
        state = self.load(path)
        weights = without_prefix(state.get("state_dict", state), "model.")
        self.check_fits(module, weights, path=path)
        module.load_state_dict(weights)

    def check_fits(self, module: "nn.Module", weights: Mapping[str, Any], *, path: str | os.PathLike[str]) -> None:
        """Raises one readable `CheckpointError` if the weights are another model's."""
        own = module.state_dict()
        problems = [f"{key} is missing" for key in own if key not in weights]
        problems += [f"{key} is not in this model" for key in weights if key not in own]
        problems += [
            f"{key} is {list(weights[key].shape)}, this model's is {list(own[key].shape)}"
            for key in own
            if key in weights and own[key].shape != weights[key].shape
        ]
        if problems:
            more = f", and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
            raise CheckpointError(
                f"{path}: holds another model's weights: {'; '.join(problems[:_SHOWN])}{more}; "
                "give the task.model settings it was trained with"
            )

    def parameter_counts(self, module: "nn.Module") -> dict[str, int]:
        """Number of parameters, `total` and `trainable`."""
        parameters = list(module.parameters())
        return {
            "total": sum(p.numel() for p in parameters),
            "trainable": sum(p.numel() for p in parameters if p.requires_grad),
        }

    def export(self, folder: str | os.PathLike[str], module: "nn.Module") -> Path:
        """Writes weights as safetensors, with the model's configuration and tokenizer where there are any.

        `from_pretrained(folder)` of transformers reads it. A folder that was there is replaced.
        """
        folder = Path(folder)
        half_made = folder.with_name(f"{folder.name}{TEMPORARY_MARK}{os.getpid()}-export")
        half_made.mkdir(parents=True)
        try:
            save_pretrained: Any = getattr(module, "save_pretrained", None)
            if save_pretrained is not None:
                save_pretrained(half_made)
            else:
                from safetensors.torch import save_model

                save_model(module, str(half_made / "model.safetensors"))
            if self._tokenizer is not None:
                self._tokenizer.save(half_made)
            shutil.rmtree(folder, ignore_errors=True)
            half_made.replace(folder)
        finally:
            shutil.rmtree(half_made, ignore_errors=True)
        return folder


def without_prefix(weights: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Names as the model has them: a Lightning module holds it as an attribute."""
    if not all(key.startswith(prefix) for key in weights):
        return dict(weights)
    return {key[len(prefix) :]: value for key, value in weights.items()}


def _needed_size(make: Any) -> str | None:
    """The parameter for the number of classes that the target cannot do without."""
    parameters = inspect.signature(make).parameters
    for name in _NUMBERS_OF_CLASSES:
        if name in parameters and name not in make.keywords and parameters[name].default is inspect.Parameter.empty:
            return name
    return None


def _accepted(make: Any, sizes: dict[str, Any]) -> dict[str, Any]:
    """Those sizes that the target takes and the configuration does not give."""
    target = getattr(make, "func", make)
    given = getattr(make, "keywords", {})
    parameters = inspect.signature(target).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    return {
        key: value
        for key, value in sizes.items()
        if key not in given
        and (key in parameters or (takes_any and key == "num_labels" and "n_labels" not in parameters))
    }


def freeze(module: "nn.Module", patterns: Sequence[str]) -> None:
    """Takes parameters out of the training; raises `ConfigError` for a pattern that fits none, or if none is left."""
    names = [name for name, _ in module.named_parameters()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(
                f"managers.model.freeze: '{pattern}' fits no parameter; there are {', '.join(names[:_SHOWN])}, ..."
            )
    for name, parameter in module.named_parameters():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)
    if patterns and not any(parameter.requires_grad for parameter in module.parameters()):
        raise ConfigError(f"managers.model.freeze: {', '.join(patterns)} leave nothing to train; freeze less")


def _enable_gradient_checkpointing(module: Any) -> None:
    if not hasattr(module, "gradient_checkpointing_enable"):
        raise ConfigError(
            f"managers.model.gradient_checkpointing: {type(module).__name__} has no gradient_checkpointing_enable(); "
            "set it to false, or use a transformers model"
        )
    module.gradient_checkpointing_enable()


def _with_lora(module: Any, settings: Mapping[str, Any]) -> Any:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise ConfigError(
            "managers.model.lora: peft is not installed; pip install '.[lora]', or set it to null"
        ) from error
    return get_peft_model(module, LoraConfig(**settings))
