"""What a checkpoint says of a model of transformers, so that it can be made without the files it began with."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from project.common.errors import CheckpointError

if TYPE_CHECKING:
    from torch import nn


def describe(module: Any) -> dict[str, str] | None:
    """Returns class and configuration of a model of transformers, below an adapter too; None for any other."""
    from transformers import PreTrainedModel

    base = module.get_base_model() if hasattr(module, "get_base_model") else module
    if not isinstance(base, PreTrainedModel):
        return None
    return {"class": type(base).__name__, "config": base.config.to_json_string(use_diff=False)}


def from_description(described: Mapping[str, str]) -> "nn.Module":
    """Returns a model with new weights from what `describe` said.

    Raises:
        CheckpointError: the class is none of transformers' models.
    """
    import json

    import transformers

    cls: Any = getattr(transformers, described["class"], None)
    is_model = isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel)
    if not is_model:
        raise CheckpointError(
            f"ckpt: transformers has no model '{described['class']}'; install the version that has it"
        )
    model: nn.Module = cls(cls.config_class.from_dict(json.loads(described["config"])))
    return model
