"""Prints the managers of a configuration in the order of building: what each needs, and in which roles it exists.

python -m project.graph [group=choice] [key=value] [--dot] [--svg FILE]
"""

import argparse
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import project
from project.common.errors import ConfigError
from project.common.manager_graph import ManagerGraph, ManagerNode
from project.common.plain_config import as_plain
from project.common.processes.identity import Role
from project.common.processes.outlived_streams import outlive_readers

_BOX_W, _BOX_H, _GAP_X, _GAP_Y, _MARGIN = 150, 44, 30, 56, 20
_ROLES = tuple(role for role in Role if role is not Role.SERVER)
_COLOURS = {4: "#dbe9ff", 3: "#e2f2e4", 2: "#fdf3d7", 1: "#f6e3e3"}  # by the number of roles

_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" text-anchor="middle">
<title>Managers: each arrow leads to what is needed</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">\
<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>
{content}
</svg>
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints or draws; returns the exit code: 2 when the managers cannot be built, with every reason on stderr."""
    parser = argparse.ArgumentParser(prog="python -m project.graph", description=__doc__)
    parser.add_argument("overrides", nargs="*", help="as for train.py")
    parser.add_argument("--dot", action="store_true", help="print it for graphviz")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw it")
    options = parser.parse_args(arguments)
    try:
        graph = ManagerGraph.read(as_plain(_compose(options.overrides)))
    except ConfigError as error:
        return _refuse(error.problems)
    if graph.problems:
        return _refuse(graph.problems)
    if options.svg is not None:
        options.svg.write_text(to_svg(graph), encoding="utf-8")
    if options.dot:
        sys.stdout.write(to_dot(graph))
    elif options.svg is None:
        _print_table(graph)
    return 0


def to_dot(graph: ManagerGraph) -> str:
    """Returns the graph in graphviz' language; arrows point at what is needed."""
    lines = ["digraph managers {", "  rankdir=BT;", "  node [shape=box];"]
    for node in graph.nodes.values():
        lines.append(f'  "{node.name}" [label="{node.name}\\n{_roles(node)}"];')
        lines += [f'  "{node.name}" -> "{need}";' for need in node.needs]
        lines += [f'  "{node.name}" -> "{wish}" [style=dashed];' for wish in _wishes(graph, node)]
    return "\n".join((*lines, "}", ""))


def to_svg(graph: ManagerGraph) -> str:
    """Returns a drawing: what needs nothing is at the top, each arrow leads to what is needed, wishes are dashed."""
    places = _place(graph)
    width = max((x for x, _ in places.values()), default=0) + _BOX_W + _MARGIN
    height = max((y for _, y in places.values()), default=0) + _BOX_H + _MARGIN
    edges = [
        _draw_edge(places[node.name], places[other], is_wish=other in node.wishes)
        for node in graph.nodes.values()
        for other in (*node.needs, *_wishes(graph, node))
    ]
    boxes = [_draw_box(node, *places[node.name]) for node in graph.nodes.values()]
    return _SVG.format(width=f"{width:g}", height=f"{height:g}", content="\n".join((*edges, *boxes)))


def _compose(overrides: Sequence[str]) -> Any:
    from hydra import compose, initialize_config_dir, initialize_config_module
    from hydra.errors import HydraException

    conf = Path(__file__).resolve().parent.parent / "conf"
    # In a checkout conf/ lies beside train.py; installed, it is a package.
    found = (
        initialize_config_dir(str(conf))
        if (conf / "config.yaml").is_file()
        else initialize_config_module(f"{project.__name__}.conf")
    )
    with found:
        try:
            return compose("config", overrides=list(overrides))
        except HydraException as error:
            raise ConfigError(f"command line: {error}") from error


def _refuse(problems: Sequence[str]) -> int:
    sys.stderr.write("\n".join((*problems, "")))
    return ConfigError.exit_code


def _print_table(graph: ManagerGraph) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "manager", "needs", *_ROLES, "class", box=None, header_style="bold")
    for number, node in enumerate(graph.nodes.values(), start=1):
        needs = ", ".join((*node.needs, *(f"({wish})" for wish in _wishes(graph, node)))) or "-"
        marks = ("●" if role in node.roles else "" for role in _ROLES)
        table.add_row(str(number), node.name, needs, *marks, node.cls.__name__)
    console = Console()
    console.print(table)
    console.print(
        "Built from top to bottom, closed from bottom to top. (name): taken where the role has it.", style="dim"
    )


def _wishes(graph: ManagerGraph, node: ManagerNode) -> tuple[str, ...]:
    return tuple(wish for wish in node.wishes if wish in graph.nodes)


def _roles(node: ManagerNode) -> str:
    return " ".join(role for role in _ROLES if role in node.roles)


def _place(graph: ManagerGraph) -> dict[str, tuple[float, float]]:
    """Returns the upper left corner of each box: a layer below all that it needs, near the middle of them."""
    layers: dict[int, list[str]] = {}
    depth: dict[str, int] = {}
    for node in graph.nodes.values():  # in the order of building: needs come first
        below = [depth[other] for other in (*node.needs, *_wishes(graph, node))]
        depth[node.name] = max(below, default=-1) + 1
        layers.setdefault(depth[node.name], []).append(node.name)
    places: dict[str, tuple[float, float]] = {}
    widest = max(map(len, layers.values()), default=0)
    for layer, names in sorted(layers.items()):
        names.sort(key=lambda name: _middle_of_needs(graph, name, places))
        start = _MARGIN + (widest - len(names)) * (_BOX_W + _GAP_X) / 2
        for column, name in enumerate(names):
            places[name] = (start + column * (_BOX_W + _GAP_X), _MARGIN + layer * (_BOX_H + _GAP_Y))
    return places


def _middle_of_needs(graph: ManagerGraph, name: str, places: dict[str, tuple[float, float]]) -> float:
    node = graph.nodes[name]
    columns = [places[other][0] for other in (*node.needs, *_wishes(graph, node))]
    return sum(columns) / len(columns) if columns else 0.0


def _draw_box(node: ManagerNode, x: float, y: float) -> str:
    fill = _COLOURS.get(len(node.roles), "#eeeeee")
    middle = x + _BOX_W / 2
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{_BOX_W}" height="{_BOX_H}" rx="6" fill="{fill}" stroke="#888"/>'
        f'<text x="{middle:g}" y="{y + 18:g}" font-size="14">{escape(node.name)}</text>'
        f'<text x="{middle:g}" y="{y + 34:g}" font-size="10" fill="#555">{escape(_roles(node))}</text>'
    )


def _draw_edge(source: tuple[float, float], target: tuple[float, float], *, is_wish: bool) -> str:
    dashes = ' stroke-dasharray="4 3"' if is_wish else ""
    x1, y1 = source[0] + _BOX_W / 2, source[1]
    x2, y2 = target[0] + _BOX_W / 2, target[1] + _BOX_H
    bend = (y1 - y2) / 2
    path = f"M{x1:g} {y1:g}C{x1:g} {y1 - bend:g} {x2:g} {y2 + bend:g} {x2:g} {y2:g}"
    return f'<path d="{path}" fill="none" stroke="#555"{dashes} marker-end="url(#tip)"/>'


if __name__ == "__main__":
    outlive_readers()
    sys.exit(main())
