"""What is wrong with a configuration, all at once and before anything starts.

`check_light` imports nothing heavy and runs in main. `check_heavy` imports every target, so it runs in a short-lived
child. Both return one line per problem: `<key>: <what was found>; <what would do>`.
"""

import difflib
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from project.common.config_origin import as_typed
from project.common.config_recipes import check_recipes
from project.common.config_shape import RULES, check_answered, check_rules, check_shape, section
from project.common.config_surroundings import check_surroundings
from project.common.errors import ConfigError
from project.common.manager_graph import ManagerGraph, parse_roles
from project.common.plain_config import as_plain
from project.common.signatures import misfits, suggest
from project.common.whitelist import authorize, find_harmful

TOP_LEVEL_KEYS = (
    *("name", "seed", "tags", "notes", "print_config", "resume", "ckpt_path", "objective", "paths", "processes"),
    *("managers", "task", "loader", "trainer", "callbacks", "logger", "user"),
)
_ADDED_GROUPS = ("experiment", "search")
_CHOICES_OF_PROCESSES = ("start_method", "roles")
START_METHODS = ("auto", "forkserver", "spawn")

_PLAIN = (str, int, float, bool, type(None))

# Settings of the trainer that managers answer, or that would hold for this process from now on.
_NOT_TRIED = ("accelerator", "devices", "num_nodes", "strategy")

# Nodes below these keys are built as they stand; code adds arguments to all others when it builds them.
_COMPLETE = ("callbacks", "logger")


def check_light(config: Mapping[str, Any], *, extra_keys: Iterable[str] = ()) -> list[str]:
    """Returns what is wrong with keys, choices, roles, needs, circles and plain values; imports no torch.

    Args:
        config: The composed configuration, plain or a DictConfig.
        extra_keys: Top-level keys that the command knows besides `TOP_LEVEL_KEYS`.
    """
    try:
        config = as_plain(config)
    except Exception as error:
        if not hasattr(error, "full_key"):  # OmegaConf's errors have one
            raise
        first_line = str(error).partition("\n")[0]
        return [f"{error.full_key}: {first_line}; correct the reference, or give the value that it refers to"]
    if problems := list(check_shape(config)):
        return as_typed(problems, config)
    checks: tuple[Callable[[Mapping[str, Any]], Iterable[str]], ...] = (
        lambda config: _check_top_level(config, (*TOP_LEVEL_KEYS, *extra_keys)),
        _check_missing,
        _check_plain,
        find_harmful,
        check_rules,
        check_recipes,
        lambda config: ManagerGraph.read(config).problems,
        _check_processes,
        _check_roles,
        _check_start_method,
        check_surroundings,
        check_answered,
        _check_objective,
        _check_resume,
    )
    problems = as_typed((problem for check in checks for problem in check(config)), config)
    return list(_once_per_key(problems))


def _once_per_key(problems: Iterable[str]) -> Iterator[str]:
    """A value that several ask for is told once, by the first, who knows its limits too."""
    told = set()
    for problem in problems:
        key, _, rest = problem.partition(":")
        if "does not fit" not in rest:
            yield problem
        elif key not in told:
            told.add(key)
            yield problem


def check_heavy(config: Mapping[str, Any]) -> list[str]:
    """Returns what is wrong with every target but the managers: import, names, types and missing arguments."""
    config = as_plain(config)
    nodes = list(_find_nodes(config, ""))
    own = [node for key, node in nodes if not key.startswith("managers.")]
    # What a manager takes from elsewhere is reported there.
    kept = [(key, node) for key, node in nodes if not key.startswith("managers.") or node not in own]
    problems = [problem for key, node in kept for problem in _check_node(key, node)]
    return as_typed((*problems, *_check_trainer(config)), config)


def _check_top_level(config: Mapping[str, Any], known: Iterable[str]) -> Iterator[str]:
    for key in config:
        if key not in known:
            group = difflib.get_close_matches(key, _ADDED_GROUPS, n=1)
            meant = f"did you mean the group, +{group[0]}=…?" if group else suggest(key, known)
            yield f"{key}: is no key of this configuration; {meant} (`user` is for values of your own)"


def _check_missing(config: Any, key: str = "") -> Iterator[str]:
    if config == "???":
        yield f"{key}: has no value; give it one, {key}=…"
    elif isinstance(config, Mapping):
        for name, value in config.items():
            yield from _check_missing(value, f"{key}.{name}" if key else str(name))
    elif isinstance(config, list):
        for n, value in enumerate(config):
            yield from _check_missing(value, f"{key}.{n}")


def _check_plain(config: Any, key: str = "") -> Iterator[str]:
    """A configuration is written to a file and handed to processes."""
    if isinstance(config, Mapping):
        for name, value in config.items():
            yield from _check_plain(value, f"{key}.{name}" if key else str(name))
    elif isinstance(config, list):
        for n, value in enumerate(config):
            yield from _check_plain(value, f"{key}.{n}")
    elif type(config) not in _PLAIN:
        yield f"{key}: {type(config).__name__} is no plain value; use text, numbers, true, false, null, lists and dicts"


def _check_processes(config: Mapping[str, Any]) -> Iterator[str]:
    known = [key.partition(".")[2] for key in RULES if key.startswith("processes.")]
    known += _CHOICES_OF_PROCESSES
    for name in section(config, "processes"):
        if name not in known and name != "allow":  # which `find_harmful` refuses with the reason
            yield f"processes.{name}: is no setting of processes; {suggest(name, known)}"


def _check_roles(config: Mapping[str, Any]) -> Iterator[str]:
    managers = config.get("managers") or {}
    for name, roles in (section(config, "processes").get("roles") or {}).items():
        if name not in managers:
            yield f"processes.roles.{name}: there is no manager of this name; {suggest(name, managers)}"
        elif roles is not None:
            try:
                parse_roles(roles, key=f"processes.roles.{name}")
            except ConfigError as error:
                yield from error.problems


def _check_start_method(config: Mapping[str, Any]) -> Iterator[str]:
    method = section(config, "processes").get("start_method", "auto")
    if method == "fork":
        yield (
            "processes.start_method: 'fork' copies locks, threads and CUDA's state half-way, so children hang or fail; "
            f"use {', '.join(START_METHODS)}"
        )
    elif method not in START_METHODS:
        yield f"processes.start_method: {method!r} is no start method; use {', '.join(START_METHODS)}"


def _check_objective(config: Mapping[str, Any]) -> Iterator[str]:
    mode = section(config, "objective").get("mode", "max")
    if mode not in ("min", "max", "???"):
        yield f"objective.mode: {mode!r} is neither; use min or max"


def _check_resume(config: Mapping[str, Any]) -> Iterator[str]:
    resume = config.get("resume", "auto")
    if not isinstance(resume, str) or not resume:
        yield f"resume: {resume!r} does not fit; use auto, never or a run's folder"
    elif resume not in {"auto", "never", "???"} and not _exists(resume, Path.is_dir):
        yield f"resume: there is no folder '{resume}'; use auto, never or a run's folder"
    checkpoint = config.get("ckpt_path")
    if checkpoint is not None and checkpoint != "???" and not _exists(str(checkpoint), Path.is_file):
        yield f"ckpt_path: there is no file '{checkpoint}'; give a checkpoint, or null for a new start"


def _exists(path: str, kind: Callable[[Path], bool]) -> bool:
    try:
        return kind(Path(path).expanduser())
    except OSError:  # a name that no file can have, or a folder that may not be read
        return False


def _find_nodes(value: Any, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields every node with a `_target_` but the managers themselves, which the light check covers."""
    is_manager = key.startswith("managers.") and key.count(".") == 1
    if isinstance(value, Mapping) and "_target_" in value and not is_manager:
        yield key, value
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for name, child in items:
        yield from _find_nodes(child, f"{key}.{name}" if key else str(name))


def _check_node(key: str, node: Mapping[str, Any]) -> list[str]:
    try:
        target = authorize(node["_target_"], key=f"{key}._target_")
    except ConfigError as error:
        return list(error.problems)
    is_complete = key.partition(".")[0] in _COMPLETE
    problems = misfits(key, target, node, given_later=() if is_complete else None)
    if is_complete and key.count(".") == 1 and node.get("_partial_") is True:
        problems.append(f"{key}._partial_: true leaves it half-built; remove the key")
    return problems


def _check_trainer(config: Mapping[str, Any]) -> list[str]:
    settings = section(config, "trainer")
    if not settings or "_target_" in settings:
        return []
    from lightning.pytorch import Trainer

    if problems := misfits("trainer", Trainer, settings, given_later=None):
        return problems
    tried = {key: value for key, value in settings.items() if key not in _NOT_TRIED}
    try:
        with _quiet():
            Trainer(**tried, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
    except Exception as error:  # noqa: BLE001 - whatever Lightning's parsing of a value comes upon
        return [f"trainer: Lightning refuses it: {' '.join(str(error).split())}"]
    return []


@contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
