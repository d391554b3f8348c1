"""What a configuration must look like before anything looks into it: sections, keys that code reads, plain values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from project.common.signatures import accepts, describe

# The keys that a run reads, by section; "" is the top.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "": (
        *("name", "seed", "resume", "ckpt_path", "objective", "paths", "processes", "managers"),
        *("task", "loader", "trainer", "callbacks", "logger"),
    ),
    "objective": ("metric", "mode"),
    "paths": ("runs_dir",),
    "processes": (
        *("start_method", "inline", "deadline_s", "stall_timeout_s", "max_restarts", "restart_wait_s", "threads"),
    ),
    "task": (
        "run",
        "test",
        "baselines",
        "at_end",
        "optimizer",
        "scheduler",
        "warmup_fraction",
        "warmup_steps",
        "label_smoothing",
    ),
    "loader": (
        *("num_workers", "num_workers_eval", "persistent_workers", "prefetch_factor", "timeout_s", "pin_memory"),
    ),
    "trainer": ("devices", "max_epochs", "max_steps", "max_time"),
}
_SECTIONS = (*filter(None, _NEEDED), "managers")
# Settings of Lightning's Trainer that are answered elsewhere, and where.
_ANSWERED: Mapping[str, str] = {
    "precision": "managers.amp.dtype",
    "accumulate_grad_batches": "loader.effective_batch_size",
    "callbacks": "the group callbacks",
    "logger": "the group logger",
    "default_root_dir": "paths.runs_dir",
    "strategy": "trainer.devices: ranks are started here, and average their gradients",
    "plugins": "managers",
    "deterministic": "managers.cuda.deterministic",
    "benchmark": "managers.cuda.cudnn_benchmark",
    "use_distributed_sampler": "managers.batch",
    "enable_progress_bar": "callbacks.progress",
    "enable_model_summary": "managers.model",
}
_SECTIONS_OF_NODES = ("callbacks", "logger")


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """What a plain setting may be: a type, and for numbers the least and the largest value; or one of some words."""

    kind: Any
    more_than: float | None = None
    least: float | None = None
    most: float | None = None
    words: tuple[str, ...] = ()


# A slip of the finger in these would bring the machine to a halt before anybody could stop it.
_WORKERS = _Rule(kind=int, least=0, most=512)
_RANKS = _Rule(kind=int | list[int], least=1, most=1024, words=("auto",))
_THREADS = _Rule(kind=int, least=1, most=1024, words=("auto",))
_COUNT = _Rule(kind=int, least=1)
_COUNT_OR_NONE = _Rule(kind=int | None, least=1)
_COUNT_OR_ZERO = _Rule(kind=int, least=0)
_AMOUNT_OR_NONE = _Rule(kind=float | None, least=0)
_LONGEST_S = 1e9  # what the system's timers can hold
_SECONDS = _Rule(kind=float, least=0, most=_LONGEST_S)
_SECONDS_OR_NONE = _Rule(kind=float | None, more_than=0, most=_LONGEST_S)
_SHARE = _Rule(kind=float, least=0, most=1)
_SHARE_OR_COUNT = _Rule(kind=float | None, least=0)
_SWITCH = _Rule(kind=bool)
RULES: Mapping[str, _Rule] = {
    "seed": _Rule(kind=int, least=0, most=2**32 - 1),
    "tags": _Rule(kind=list[str] | None),
    "notes": _Rule(kind=str | None),
    "print_config": _SWITCH,
    "objective.metric": _Rule(kind=str),
    "paths.runs_dir": _Rule(kind=str),
    "paths.cache_dir": _Rule(kind=str | None),
    "processes.deadline_s": _Rule(kind=float, least=1, most=_LONGEST_S),
    "processes.close_timeout_s": _SECONDS_OR_NONE,
    "processes.finish_timeout_s": _SECONDS,
    "processes.stall_timeout_s": _SECONDS_OR_NONE,
    "processes.max_restarts": _COUNT_OR_ZERO,
    "processes.restart_wait_s": _Rule(kind=float, least=0),
    "processes.threads": _THREADS,
    "processes.inline": _SWITCH,
    "task.test": _SWITCH,
    "task.warmup_fraction": _Rule(kind=float | None, least=0, most=1),
    "task.warmup_steps": _Rule(kind=int | None, least=0),
    "task.label_smoothing": _SHARE,
    # Optimizers check their values themselves; what is no number is told with all the rest.
    "task.optimizer.lr": _Rule(kind=float | None),
    "task.optimizer.weight_decay": _Rule(kind=float | None),
    "trainer.devices": _RANKS,
    "trainer.num_nodes": _COUNT,
    "trainer.max_epochs": _Rule(kind=int | None, least=-1),
    "trainer.max_steps": _Rule(kind=int, least=-1),
    "trainer.check_val_every_n_epoch": _COUNT_OR_NONE,
    "trainer.gradient_clip_val": _AMOUNT_OR_NONE,
    "trainer.val_check_interval": _Rule(kind=float | str | None, more_than=0),
    "trainer.log_every_n_steps": _COUNT_OR_NONE,
    "trainer.limit_train_batches": _Rule(kind=float | None, more_than=0),
    "trainer.limit_val_batches": _SHARE_OR_COUNT,
    "trainer.limit_test_batches": _SHARE_OR_COUNT,
    "trainer.overfit_batches": _Rule(kind=float, least=0),
    "trainer.num_sanity_val_steps": _Rule(kind=int | None, least=-1),
    "trainer.detect_anomaly": _SWITCH,
    "trainer.sync_batchnorm": _SWITCH,
    "trainer.fast_dev_run": _Rule(kind=bool | int, least=0),
    "loader.batch_size": _COUNT_OR_NONE,
    "loader.effective_batch_size": _COUNT_OR_NONE,
    "loader.num_workers": _WORKERS,
    "loader.num_workers_eval": _WORKERS,
    "loader.persistent_workers": _SWITCH,
    "loader.prefetch_factor": _COUNT_OR_NONE,
    "loader.timeout_s": _SECONDS,
    "loader.pin_memory": _SWITCH,
}


def check_shape(config: Mapping[str, Any]) -> Iterator[str]:
    """What is no section where one must be; nothing else can be said of a configuration that has such a problem."""
    for name in _SECTIONS:
        if name in config and not isinstance(config[name], Mapping):
            yield f"{name}: {config[name]!r} does not fit; use keys with values, as conf/{name}/ has them"
    for name in _SECTIONS_OF_NODES:
        yield from _check_nodes(name, config.get(name))
    yield from _check_roles(section(config, "processes").get("roles"))


def _check_nodes(name: str, nodes: Any) -> Iterator[str]:
    if nodes is not None and not isinstance(nodes, Mapping):
        yield f"{name}: {nodes!r} does not fit; use names with a _target_ each, or {name}=none"
        return
    for key, node in (nodes or {}).items():
        if node is not None and not (isinstance(node, Mapping) and "_target_" in node):
            yield f"{name}.{key}: {node!r} does not fit; give it a _target_, or null to leave it out"


def _check_roles(roles: Any) -> Iterator[str]:
    if roles is not None and not isinstance(roles, Mapping):
        yield f"processes.roles: {roles!r} does not fit; use managers' names with a list of roles each"
        return
    for name, names in (roles or {}).items():
        if not accepts(list[str] | str | None, names):
            yield f"processes.roles.{name}: {names!r} does not fit; use a list of roles, or null"


def check_complete(config: Mapping[str, Any]) -> list[str]:
    """Returns which keys are missing that a run reads; a script that uses managers alone needs none of them."""
    return [
        f"{name}: is missing; give it a value, as conf/{name.partition('.')[0]} does"
        if "." in name
        else f"{name}: is missing; give it, as conf/config.yaml does"
        for above, keys in _NEEDED.items()
        for name in (f"{above}.{key}".lstrip(".") for key in keys)
        if name.rpartition(".")[2] not in section(config, above)
    ]


def check_rules(config: Mapping[str, Any]) -> Iterator[str]:
    """Plain values that do not fit."""
    for key, rule in RULES.items():
        above, _, name = key.rpartition(".")
        values = section(config, above)
        if name in values and values[name] != "???" and not _obeys(rule, values[name]):
            yield f"{key}: {values[name]!r} does not fit; use {_describe_rule(rule)}"


def check_answered(config: Mapping[str, Any]) -> Iterator[str]:
    """Settings of the Trainer that would be given twice."""
    for key, where in _ANSWERED.items():
        if key in section(config, "trainer"):
            yield f"trainer.{key}: is decided by {where}; remove it"


def section(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A section by its dotted key, or the whole configuration for ""; empty where there is none."""
    for name in filter(None, key.split(".")):
        value = config.get(name)
        config = value if isinstance(value, Mapping) else {}
    return config


def _obeys(rule: _Rule, value: Any) -> bool:
    if isinstance(value, str):
        return value in rule.words or (accepts(rule.kind, value) and value.strip() != "" and "\0" not in value)
    if not accepts(rule.kind, value):
        return False
    if not isinstance(value, (int, float)):
        return True
    # Written so that .nan, which is neither less nor more, does not pass.
    return (
        (rule.more_than is None or value > rule.more_than)
        and (rule.least is None or value >= rule.least)
        and (rule.most is None or value <= rule.most)
    )


def _describe_rule(rule: _Rule) -> str:
    text = " or ".join((describe(rule.kind), *rule.words))
    limits = {"more than": rule.more_than, "at least": rule.least, "at most": rule.most}
    said = " and ".join(f"{words} {limit:.10g}" for words, limit in limits.items() if limit is not None)
    return f"{text}, {said}" if said else text
