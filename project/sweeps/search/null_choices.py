"""Lets `choice(null, 1)` be typed: Hydra takes null in `x=null,1`, but refuses it as an argument of `choice`."""

from hydra._internal.grammar import grammar_functions

_ARGUMENTS = "args"


def allow_null_choices() -> None:
    """For every parser that is made in this process from now on; call it before Hydra reads the command line."""
    annotations = grammar_functions.choice.__annotations__
    annotations[_ARGUMENTS] = annotations[_ARGUMENTS] | None  # the same when done twice
