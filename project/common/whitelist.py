"""What a configuration may call: every `_target_` passes this list, by its name and by what the name leads to.

A configuration may come from somebody else: a run folder, a checkpoint, a pasted override. So nothing in it can make
the list longer. Your own targets outside `tasks/` belong in `ALLOW` of `tasks/__init__.py`.
"""

import difflib
import functools
import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from project.common.errors import ConfigError
from project.common.plain_config import as_plain

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
    f"{_PACKAGE}.training.*": frozenset(
        {
            "lightning.pytorch.callbacks.callback.Callback",
            "lightning.pytorch.loggers.logger.Logger",
            "torch.optim.lr_scheduler.LRScheduler",
        }
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

WHITELIST = (*_CLASSES_OF, *_NAMED, f"{_PACKAGE}.tasks.*")

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
            of them) do not belong here: set `_partial_: true`, and call the result with them.

    Returns:
        The object; with `_partial_` a `functools.partial`.

    Raises:
        ConfigError: A target is not allowed, cannot be found, or trusts remote code.
    """
    from hydra.errors import InstantiationException
    from hydra.utils import execution_whitelist
    from hydra.utils import instantiate as hydra_instantiate

    node = {"_convert_": "all"} | as_plain(node)
    patterns = (*allowed_patterns(), *allow)
    refuse_harmful(node, patterns=patterns)
    for key, target in find_targets(node):
        authorize(target, key=f"{key}._target_".lstrip("."), patterns=patterns)
    is_partial = kwargs.pop("_partial_", node.get("_partial_", False))
    try:
        # `reset`: a wider list that is in force around us must not add to ours.
        policy = execution_whitelist(patterns, reset=True)
        prepared = hydra_instantiate({**node, "_partial_": True}, _execution_whitelist_=policy, **kwargs)
    except InstantiationException as error:
        raise ConfigError(f"_target_: '{node.get('_target_')}' was refused by Hydra: {error}; {_remedy()}") from error
    # Called by us: Hydra would refuse a model of another library, which an allowed function returned.
    make = functools.partial(prepared.func, *prepared.args, **prepared.keywords)
    return make if is_partial else make()


def find_targets(config: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yields the key of every node that has a `_target_`, and the target."""
    for path, value in _walk(config, key):
        if path.rpartition(".")[2] == "_target_":
            yield path.rpartition(".")[0], value


def refuse_harmful(config: Mapping[str, Any], *, patterns: Sequence[str] | None = None) -> None:
    """Raises `ConfigError` with all that `find_harmful` finds."""
    if problems := find_harmful(config, patterns=patterns):
        raise ConfigError(*problems)


def find_harmful(config: Mapping[str, Any], *, patterns: Sequence[str] | None = None) -> list[str]:
    """Returns what in a configuration would run code that nobody allowed. Looks at names only and imports nothing."""
    patterns = allowed_patterns() if patterns is None else patterns
    return [problem for path, value in _walk(config, "") for problem in _judge(path, value, patterns)]


def authorize(target: Any, *, key: str = "_target_", patterns: Sequence[str] | None = None) -> Any:
    """Imports a target and returns it, if both its name and what the name leads to may be called.

    Args:
        target: A dotted name.
        key: What an error talks about.
        patterns: None takes `allowed_patterns()`.

    Raises:
        ConfigError: It may not, or cannot be found.
    """
    patterns = allowed_patterns() if patterns is None else patterns
    if problem := _judge_name(target, patterns):
        raise ConfigError(f"{key}: {problem}")
    try:
        found = _locate(target)
    except Exception as error:  # importing runs other people's code, which may raise anything
        text = f"'{target}' cannot be imported ({type(error).__name__}: {error})"
        raise ConfigError(f"{key}: {text}{_nearest(target)}") from error
    if problem := _judge_identity(target, found, patterns):
        raise ConfigError(f"{key}: {problem}")
    return found


def _judge(path: str, value: Any, patterns: Sequence[str]) -> list[str]:
    key = path.rpartition(".")[2]
    problem = None
    if key == "_target_":
        problem = _judge_name(value, patterns)
    elif key == "_execution_whitelist_" or (path == "processes.allow" and value):
        problem = f"a configuration cannot allow targets; {_remedy()}"
    elif key == "trust_remote_code" and value:
        problem = "code from a hub would run unread; download it, read it, and put it into your tasks"
    elif key == "weights_only" and value is False:
        problem = "a checkpoint could run any code when it is loaded; leave it at true"
    return [f"{path}: {problem}"] if problem else []


def _judge_name(target: Any, patterns: Sequence[str]) -> str | None:
    if not isinstance(target, str):
        return f"{target!r} is not a dotted name; write package.module.name"
    if any(part.startswith("__") for part in target.split(".")):
        return f"'{target}' reaches into Python's own machinery; name a class or function"
    if _match(target, patterns) is None:
        return f"'{target}' may not be called from a configuration; {_remedy()}"
    return None


def _judge_identity(target: str, found: Any, patterns: Sequence[str]) -> str | None:
    """A name may lead out of what its prefix promises: `torch.nn.modules.module.torch.load`."""
    if target in patterns:
        return None
    identity = f"{getattr(found, '__module__', None)}.{getattr(found, '__qualname__', None)}"
    pattern = _match(identity, patterns)
    if pattern is None or not callable(found):
        return f"'{target}' leads to {identity}, which may not be called from a configuration; {_remedy()}"
    bases = _CLASSES_OF.get(pattern)
    if bases is not None and not _derives(found, bases):
        return f"'{target}' is no {' or '.join(sorted(bases))}, and nothing else of {pattern[:-2]} may be called"
    return None


def _remedy() -> str:
    return f"if you trust it, add it to ALLOW in {_PACKAGE}/tasks/__init__.py"


def _match(name: str, patterns: Sequence[str]) -> str | None:
    """Returns the pattern that fits best: the name itself, else the longest prefix."""
    if name in patterns:
        return name
    fitting = [pattern for pattern in patterns if pattern.endswith(".*") and name.startswith(pattern[:-1])]
    return max(fitting, key=len, default=None)


def _derives(found: Any, bases: frozenset[str]) -> bool:
    # A metaclass makes classes out of what it is given.
    if not isinstance(found, type) or issubclass(found, type):
        return False
    return any(f"{base.__module__}.{base.__qualname__}" in bases for base in found.__mro__)


def _locate(target: str) -> Any:
    """Finds what a name leads to, in the same order as Hydra does: attributes first, then modules."""
    parts = target.split(".")
    found: Any = importlib.import_module(parts[0])
    for n, part in enumerate(parts[1:], start=2):
        if isinstance(found, ModuleType) and not hasattr(found, part):
            found = importlib.import_module(".".join(parts[:n]))
        else:
            found = getattr(found, part)
    return found


def _nearest(target: str) -> str:
    """The end of an error text: what of the last module on the way has nearly the name that was not found there."""
    parts = target.split(".")
    for n in range(len(parts) - 1, 0, -1):
        found = sys.modules.get(".".join(parts[:n]))
        if found is not None:
            names = {name for name in vars(found) if not name.startswith("_")}
            names |= {module.name for module in pkgutil.iter_modules(getattr(found, "__path__", None) or ())}
            close = difflib.get_close_matches(parts[n], names, n=1)
            return f"; did you mean '{'.'.join((*parts[:n], *close, *parts[n + 1 :]))}'?" if close else ""
    return ""


def _walk(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Yields each dotted key below a structure and its value."""
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):  # a ListConfig is no list
        items = enumerate(value)
    for name, child in items:
        path = f"{key}.{name}" if key else str(name)
        yield path, child
        yield from _walk(child, path)
