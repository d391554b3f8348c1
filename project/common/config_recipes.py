"""What a run builds: nodes, where nothing else can stand, and managers, in the roles that ask for them."""

from collections.abc import Iterator, Mapping
from typing import Any

from project.common.config_shape import section

_NEEDED = ("task.optimizer", "managers.model.model")
_OPTIONAL = (
    *("task.run", "task.baselines", "task.at_end", "task.scheduler"),
    *("managers.tokenizer.train", "managers.data.source", "managers.data.split", "managers.data.transform"),
)
_EACH_BELOW = ("managers.metrics.metrics",)
_ROLES_THAT_ASK = {"directory": ("trial", "rank"), "cuda": ("trial", "rank"), "metrics": ("rank",), "wandb": ("rank",)}
_ASKED_FOR_BY_TRAINING = ("tokenizer", "data", "batch", "model", "amp")


def check_recipes(config: Mapping[str, Any]) -> Iterator[str]:
    """What is no node where one is built."""
    for key in (*_NEEDED, *_OPTIONAL):
        above, _, name = key.rpartition(".")
        settings = section(config, above)
        if name in settings and not _is_fitting(settings[name], may_be_null=key in _OPTIONAL):
            yield f"{key}: {settings[name]!r} does not fit; give it a _target_" + ", or null" * (key in _OPTIONAL)
    for key in _EACH_BELOW:
        for name, node in section(config, key).items():
            if not _is_fitting(node, may_be_null=False):
                yield f"{key}.{name}: {node!r} does not fit; give it a _target_, or remove it"


def _is_fitting(node: Any, *, may_be_null: bool) -> bool:
    if node is None or node == "???":
        return may_be_null or node == "???"
    return isinstance(node, Mapping) and "_target_" in node


def check_managers_of_run(config: Mapping[str, Any]) -> Iterator[str]:
    """Managers that a run asks for and that are not there, or not in the role that asks."""
    asked = dict(_ROLES_THAT_ASK)
    if section(config, "task").get("run") is None:
        asked |= dict.fromkeys(_ASKED_FOR_BY_TRAINING, ("rank",))
    managers, roles = section(config, "managers"), section(config, "processes.roles")
    for name, asking in asked.items():
        if managers.get(name) is None:
            yield f"managers.{name}: is not there, but a run needs it; choose managers/{name}=default"
            continue
        configured = roles.get(name)
        given = asking if configured is None else [configured] if isinstance(configured, str) else configured
        if missing := [role for role in asking if role not in given]:
            yield f"processes.roles.{name}: leaves out {missing[0]}, where a run needs it; add {missing[0]}"
