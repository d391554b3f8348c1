"""Which manager needs which: read from constructor signatures, without building anything."""

import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from project.common.errors import ConfigError
from project.common.processes.identity import Role
from project.common.signatures import HYDRA_KEYS, follows_recipe, misfits, resolve_annotation, suggest
from project.common.whitelist import authorize


@dataclass(frozen=True, kw_only=True)
class ManagerNode:
    """One configured manager.

    Args:
        needs: Managers that must exist before this one.
        wishes: Managers that are given if they exist in the process's role; None otherwise.
        settings: What the configuration says: arguments of the constructor, and Hydra's own keys.
    """

    name: str
    cls: type
    roles: frozenset[Role]
    needs: tuple[str, ...]
    wishes: tuple[str, ...]
    settings: Mapping[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        """What the configuration gives to the constructor."""
        return {name: value for name, value in self.settings.items() if name not in HYDRA_KEYS}


class ManagerGraph:
    """The managers of a configuration, in the order in which they can be built.

    Args:
        nodes: By name, in the order of building.
        problems: What stands in the way of building, one line each.
    """

    def __init__(self, nodes: Mapping[str, ManagerNode], problems: Iterable[str] = ()) -> None:
        self.problems = list(problems)
        self.problems += [problem for node in nodes.values() for problem in _judge(node, nodes)]
        self.nodes = self._sort(nodes)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> "ManagerGraph":
        """Reads the graph of a plain configuration; imports the managers' modules, but builds none."""
        managers = config.get("managers") or {}
        roles = (config.get("processes") or {}).get("roles") or {}
        nodes: dict[str, ManagerNode] = {}
        problems: list[str] = []
        for name, settings in managers.items():
            if settings is None:  # switched off
                continue
            try:
                nodes[name] = _read_node(name, settings, configured=managers, roles=roles.get(name))
            except ConfigError as error:
                problems += error.problems
        return cls(nodes, problems)

    def for_role(self, role: Role) -> dict[str, ManagerNode]:
        """The managers that a process of this role may have, in the order of building."""
        return {name: node for name, node in self.nodes.items() if role in node.roles}

    def _sort(self, nodes: Mapping[str, ManagerNode]) -> dict[str, ManagerNode]:
        edges = {
            name: [other for other in (*node.needs, *node.wishes) if other in nodes] for name, node in nodes.items()
        }
        try:
            return {name: nodes[name] for name in TopologicalSorter(edges).static_order()}
        except CycleError as error:
            self.problems.append(f"managers need each other in a circle: {_describe_circle(error.args[1])}")
            return dict(nodes)


def _describe_circle(circle: list[str]) -> str:
    # graphlib lists from need to needing, starting anywhere; people read it the other way round.
    ring = circle[:0:-1]
    start = ring.index(min(ring))
    return " -> ".join((*ring[start:], *ring[:start], ring[start]))


@functools.cache
def read_parameters(cls: type) -> Mapping[str, inspect.Parameter]:
    """Returns the parameters of a class's constructor, without `self`."""
    parameters = dict(inspect.signature(cls.__init__).parameters)  # type: ignore[misc]
    parameters.pop(next(iter(parameters), ""), None)
    return {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind not in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}
    }


def parse_roles(names: Iterable[str], *, key: str) -> frozenset[Role]:
    """Returns roles by their names; `key` is what an error talks about."""
    known = [str(role) for role in Role if role is not Role.SERVER]
    names = [names] if isinstance(names, str) else list(names)
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"{key}: there is no role {unknown[0]!r}; {suggest(unknown[0], known)}")
    return frozenset(Role(name) for name in names)


def _read_node(name: str, settings: Any, *, configured: Mapping[str, Any], roles: Any) -> ManagerNode:
    key = f"managers.{name}"
    if not isinstance(settings, Mapping) or not settings.get("_target_"):
        others = [other for other in configured if other != name]
        raise ConfigError(f"{key}._target_: missing; give the manager's class, or {suggest(name, others)}")
    cls = authorize(settings["_target_"], key=f"{key}._target_")
    if not isinstance(cls, type) or not hasattr(cls, "roles"):
        raise ConfigError(
            f"{key}._target_: {settings['_target_']} is no manager; name a class derived from BaseManager"
        )
    needs, wishes = _read_needs(name, cls, configured=configured, given=settings)
    return ManagerNode(
        name=name,
        cls=cls,
        roles=frozenset(cls.roles) if roles is None else parse_roles(roles, key=f"processes.roles.{name}"),
        needs=needs,
        wishes=wishes,
        settings=settings,
    )


def _read_needs(
    name: str, cls: type, *, configured: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns needs and wishes: parameters that are named like another manager, or annotated as one."""
    needs: list[str] = []
    wishes: list[str] = []
    for parameter in read_parameters(cls).values():
        is_manager = parameter.name in configured or _is_annotated_as_manager(parameter)
        if parameter.name == name or parameter.name in given or not is_manager:
            continue
        (needs if parameter.default is parameter.empty else wishes).append(parameter.name)
    return tuple(needs), tuple(wishes)


def _is_annotated_as_manager(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return text.replace("| None", "").strip("'\" ").endswith("Manager")


def _judge(node: ManagerNode, nodes: Mapping[str, ManagerNode]) -> Iterator[str]:
    key = f"managers.{node.name}"
    for need in node.needs:
        if need not in nodes:
            yield f"{key}: needs '{need}', which is not configured; add managers/{need} to the defaults"
        elif missing := node.roles - nodes[need].roles:
            names = ", ".join(sorted(missing))
            yield (
                f"processes.roles.{node.name}: includes {names}, where its need '{need}' is not; "
                f"leave {names} out, or add it to processes.roles.{need}"
            )
    for parameter in read_parameters(node.cls).values():
        if parameter.name in node.arguments and _is_annotated_as_manager(parameter):
            yield f"{key}.{parameter.name}: is a manager, which the container gives; remove the key"
    yield from _judge_recursion(key, node)
    yield from misfits(key, node.cls, node.settings, given_later=(*node.needs, *node.wishes))


def _judge_recursion(key: str, node: ManagerNode) -> Iterator[str]:
    if node.settings.get("_recursive_") is not True:
        return
    for name, parameter in read_parameters(node.cls).items():
        if follows_recipe(resolve_annotation(node.cls, parameter), node.arguments.get(name)):
            yield f"{key}._recursive_: true would build '{name}' too early: the manager does it itself; use false"
