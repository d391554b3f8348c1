"""What a configuration may call: every `_target_` passes this list, by its name and by what the name leads to.

A configuration may come from somebody else: a run folder, a checkpoint, a pasted override. So nothing in it can make
the list longer. Your own targets outside `tasks/` belong in `ALLOW` of `tasks/__init__.py`.
"""

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from project.common.errors import ConfigError

_PACKAGE = __name__.partition(".")[0]
ALLOW_VARIABLE = f"{_PACKAGE.upper()}_ALLOW"

# Only classes that derive from one of the bases, so that no method or helper below these names can be called.
# Bases are compared by name: nothing is imported to ask.
_CLASSES_OF: Mapping[str, frozenset[str]] = {
    "torch.nn.*": frozenset({"torch.nn.modules.module.Module"}),
    "torch.optim.*": frozenset({"torch.optim.optimizer.Optimizer", "torch.optim.lr_scheduler.LRScheduler"}),
    "lightning.pytorch.callbacks.*": frozenset({"lightning.pytorch.callbacks.callback.Callback"}),
    "lightning.pytorch.loggers.*": frozenset({"lightning.pytorch.loggers.logger.Logger"}),
    "torchmetrics.classification.*": frozenset({"torchmetrics.metric.Metric"}),
    "torchmetrics.regression.*": frozenset({"torchmetrics.metric.Metric"}),
    "torchmetrics.text.*": frozenset({"torchmetrics.metric.Metric"}),
    "torchmetrics.aggregation.*": frozenset({"torchmetrics.metric.Metric"}),
    "transformers.models.*": frozenset(
        {"torch.nn.modules.module.Module", "transformers.configuration_utils.PreTrainedConfig"}
    ),
    f"{_PACKAGE}.common.managers.*": frozenset({f"{_PACKAGE}.common.managers.base.BaseManager"}),
}

# One callable each. `from_pretrained` reads weights with weights_only; remote code is refused in `refuse_harmful`.
_NAMED = (
    *(
        f"transformers.{name}"
        for name in (
            "get_scheduler",
            "get_constant_schedule",
            "get_constant_schedule_with_warmup",
            "get_cosine_schedule_with_warmup",
            "get_cosine_with_hard_restarts_schedule_with_warmup",
            "get_inverse_sqrt_schedule",
            "get_linear_schedule_with_warmup",
            "get_polynomial_decay_schedule_with_warmup",
            "get_wsd_schedule",
            "AutoConfig.from_pretrained",
            "AutoModelForCausalLM.from_pretrained",
            "AutoModelForMaskedLM.from_pretrained",
            "AutoModelForSequenceClassification.from_pretrained",
            "AutoTokenizer.from_pretrained",
        )
    ),
    "datasets.load_dataset",
    "datasets.load_from_disk",
)

WHITELIST = (*_CLASSES_OF, *_NAMED, f"{_PACKAGE}.tasks.*", f"{_PACKAGE}.training.*")

_added: list[str] = []


def allow_targets(*patterns: str) -> None:
    """Lets this process call more targets; for trusted Python code. A trailing `.*` means everything below."""
    _added.extend(patterns)


def allowed_patterns() -> tuple[str, ...]:
    """Everything that may be called here: our list, the user's `ALLOW`, and the environment variable's."""
    # By name: `common` knows no task.
    tasks = importlib.import_module(f"{_PACKAGE}.tasks")
    named = (name.strip() for name in os.environ.get(ALLOW_VARIABLE, "").split(","))
    return (*WHITELIST, *tasks.ALLOW, *filter(None, named), *_added)


def instantiate(node: Mapping[str, Any], *, allow: Sequence[str] = (), **kwargs: Any) -> Any:
    """Builds what a configuration node describes, nested nodes included; plain containers arrive as such.

    Args:
        node: Has a `_target_`; Hydra's `_partial_`, `_recursive_`, `_args_` and `_convert_` mean what they say there.
        allow: Further targets for this call; from trusted Python code only.
        **kwargs: Further plain arguments. Objects that Hydra would turn into a DictConfig (dataclasses, managers, dicts
            of them) do not belong here: set `_partial_: true` in the node, and call the result with them.

    Raises:
        ConfigError: A target is not allowed, cannot be found, or trusts remote code.
    """
    from hydra.errors import InstantiationException  # noqa: PLC0415 - reading the patterns needs no Hydra
    from hydra.utils import execution_whitelist, instantiate as hydra_instantiate  # noqa: PLC0415

    patterns = (*allowed_patterns(), *allow)
    refuse_harmful(node, patterns=patterns)
    for _, target in find_targets(node):
        authorize(target, patterns=patterns)
    try:
        # `reset`: a wider list that is in force around us must not add to ours.
        policy = execution_whitelist(patterns, reset=True)
        return hydra_instantiate({"_convert_": "all", **node}, _execution_whitelist_=policy, **kwargs)
    except InstantiationException as error:
        raise ConfigError(f"{node.get('_target_')}: {error}") from error
