"""Whether a configuration node fits what it would call: names, missing arguments and types, without calling it."""

import difflib
import inspect
import os
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum
from typing import Any, Literal, Union

HYDRA_KEYS = frozenset({"_target_", "_partial_", "_recursive_", "_convert_", "_args_", "_isolate_"})
_CONVERSIONS = ("none", "partial", "object", "all")
_LISTS = frozenset({list, tuple, set, frozenset, Sequence, Iterable, Collection, Set})
_NUMBERS: Mapping[type, tuple[type, ...]] = {int: (int,), float: (int, float)}
_PLAIN = frozenset({int, float, str, bool})
_WRITTEN_AS_TEXT = (Enum, os.PathLike)
_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}
_NAMES_OF_SEVERAL = {int: "whole numbers", float: "numbers"}


def misfits(
    key: str, target: Callable[..., Any], node: Mapping[str, Any], *, given_later: Collection[str] | None
) -> list[str]:
    """Returns what does not fit, one line per argument.

    Args:
        key: The node's place in the configuration.
        target: What it calls.
        node: Its arguments; Hydra's own keys are left alone.
        given_later: Parameters that code adds when it calls the target; None when it may add any.
    """
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # some built-in callables do not tell
        return []
    parameters = signature.parameters
    named = {name: value for name, value in node.items() if name not in HYDRA_KEYS}
    label = getattr(target, "__name__", str(target))
    return [
        *_misused(key, label, node, signature),
        *_unknown(key, label, named, parameters),
        *_missing(key, label, node, parameters, given_later),
        *_mistyped(key, target, named, parameters),
    ]


def suggest(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error text: what was probably meant, and what there is."""
    names = sorted(map(str, known))
    close = difflib.get_close_matches(str(name), names, n=1)
    there_is = f"there {'is' if len(names) == 1 else 'are'} {', '.join(names) or 'none at all'}"
    return f"did you mean '{close[0]}'? {there_is}" if close else there_is


def accepts(annotation: Any, value: Any) -> bool:
    """Whether a plain value can be meant by an annotation; True where the annotation does not decide it."""
    if annotation in _NUMBERS:
        return isinstance(value, _NUMBERS[annotation]) and not isinstance(value, bool)
    if annotation in {str, bool}:
        return isinstance(value, annotation)
    if annotation in {None, type(None)}:
        return value is None
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in {Union, types.UnionType}:
        return any(accepts(argument, value) for argument in _decisive(arguments))
    if origin is Literal:
        return value in arguments
    return _accepts_container(origin or annotation, arguments, value)


def describe(annotation: Any) -> str:
    """Says what an annotation wants, in words."""
    if annotation in _NAMES:
        return _NAMES[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in {Union, types.UnionType}:
        return " or ".join(describe(argument) for argument in _decisive(arguments))
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if _is_a(origin or annotation, Mapping):
        return "keys with values"
    if (origin or annotation) in _LISTS:
        return "a list" + (f" of {_NAMES_OF_SEVERAL.get(arguments[0], describe(arguments[0]))}" if arguments else "")
    return str(getattr(annotation, "__name__", annotation))


def resolve_annotation(target: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Returns a parameter's annotation as a type; Any when it names what is imported for type checkers only."""
    if parameter.annotation is parameter.empty:
        return Any
    function = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    namespace = getattr(inspect.unwrap(function), "__globals__", {})
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return typing.get_type_hints(holder, globalns=namespace)[parameter.name]
    except Exception:  # noqa: BLE001 - annotations are other people's code; one that cannot be read decides nothing
        return Any


def _misused(key: str, label: str, node: Mapping[str, Any], signature: inspect.Signature) -> Iterator[str]:
    """Hydra's own keys: it would complain about them only when it builds the node."""
    for name in ("_recursive_", "_partial_"):
        if name in node and not isinstance(node[name], bool):
            yield f"{key}.{name}: {node[name]!r} does not fit; use true or false"
    if node.get("_convert_", "all") not in _CONVERSIONS:
        yield f"{key}._convert_: {node['_convert_']!r} does not fit; use {', '.join(_CONVERSIONS)}"
    values = node.get("_args_", [])
    if not isinstance(values, (list, tuple)):
        yield f"{key}._args_: {values!r} does not fit; use a list, or name the arguments"
        return
    try:
        signature.bind_partial(*values)
    except TypeError:
        yield f"{key}._args_: {label} does not take {len(values)} values without names; name the arguments"


def _unknown(key: str, label: str, named: Iterable[str], parameters: Mapping[str, inspect.Parameter]) -> Iterator[str]:
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = [
        parameter.name
        for parameter in parameters.values()
        if parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}
    ]
    for name in named:
        if name not in known:
            yield f"{key}.{name}: {label} takes no '{name}'; {suggest(name, known)}"


def _missing(
    key: str,
    label: str,
    node: Mapping[str, Any],
    parameters: Mapping[str, inspect.Parameter],
    given_later: Collection[str] | None,
) -> Iterator[str]:
    if given_later is None or node.get("_partial_") or node.get("_args_"):
        return
    for name, parameter in parameters.items():
        is_optional = parameter.default is not parameter.empty
        is_variadic = parameter.kind in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}
        if not (is_optional or is_variadic or name in node or name in given_later):
            yield f"{key}.{name}: missing; {label} needs it"


def _mistyped(
    key: str, target: Callable[..., Any], named: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]
) -> Iterator[str]:
    for name, value in named.items():
        parameter = parameters.get(name)
        # "???" is reported as missing; a node below becomes an object of its own.
        if parameter is None or value == "???" or (isinstance(value, Mapping) and "_target_" in value):
            continue
        annotation = resolve_annotation(target, parameter)
        is_default = type(value) is type(parameter.default) and value == parameter.default
        if not accepts(annotation, value) and not is_default:
            yield _misfit(f"{key}.{name}", annotation, value)


def _misfit(key: str, annotation: Any, value: Any) -> str:
    """Names the innermost value that does not fit."""
    for kind in _values_of(annotation) if isinstance(value, Mapping) else ():
        for name, item in value.items():
            if not accepts(kind, item):
                return _misfit(f"{key}.{name}", kind, item)
    return f"{key}: {value!r} does not fit; use {describe(annotation)}"


def follows_recipe(annotation: Any, value: Any) -> bool:
    """Whether a node in `value` is wanted as it stands, by an annotation that takes keys with values there."""
    if not isinstance(value, Mapping):
        return False
    kinds = _values_of(annotation)
    if "_target_" in value:
        return bool(kinds)
    return any(follows_recipe(kind, item) for kind in kinds for item in value.values())


def _values_of(annotation: Any) -> list[Any]:
    """What the values may be of each mapping that an annotation allows."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in {Union, types.UnionType}:
        return [kind for argument in arguments for kind in _values_of(argument)]
    if _is_a(origin or annotation, Mapping):
        return [arguments[1] if len(arguments) == 2 else Any]
    return []


def _decisive(members: Sequence[Any]) -> Sequence[Any]:
    """Leaves out of `float | Tensor` what no plain value can be meant for; of `Tensor | None` nothing is known."""
    if not any(member in _PLAIN for member in members):
        return members
    plain = _PLAIN | {type(None), list, tuple, dict}
    return [m for m in members if not isinstance(m, type) or m in plain or _is_a(m, _WRITTEN_AS_TEXT)]


def _accepts_container(kind: Any, arguments: Sequence[Any], value: Any) -> bool:
    if _is_a(kind, Mapping):
        inner = arguments[1] if len(arguments) == 2 else Any
        return isinstance(value, Mapping) and all(accepts(inner, item) for item in value.values())
    if kind in _LISTS:
        if not isinstance(value, (list, tuple)):
            return False
        element = arguments[0] if arguments and kind is not tuple else Any
        return element is Any or all(accepts(element, item) for item in value)
    return True


def _is_a(kind: Any, base: type | tuple[type, ...]) -> bool:
    return isinstance(kind, type) and issubclass(kind, base) and kind is not str
