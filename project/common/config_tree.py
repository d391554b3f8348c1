"""The composed configuration as a tree, for the terminal; secrets masked."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from project.common.files.secrets import mask_config

if TYPE_CHECKING:
    from rich.tree import Tree


def print_tree(config: Mapping[str, Any]) -> None:
    """Prints it to stderr, where the log is: the last lines of stdout are the result."""
    from rich.console import Console

    Console(stderr=True).print(config_tree(config))


def config_tree(config: Mapping[str, Any]) -> "Tree":
    """A branch per section, a leaf per value."""
    from rich.tree import Tree

    tree = Tree("configuration", guide_style="dim")
    _grow(tree, mask_config(dict(config)))
    return tree


def _grow(tree: "Tree", section: Mapping[Any, Any]) -> None:
    from rich.text import Text

    for name, value in section.items():
        if isinstance(value, Mapping) and value:
            _grow(tree.add(Text(str(name), style="bold")), value)
        else:
            shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            tree.add(Text.assemble(f"{name}: ", (shown, "cyan")))
