"""`python -m project.graph` shows how the managers of a configuration hang together."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from project import graph as command
from project.common.manager_graph import ManagerGraph
from project.common.whitelist import ALLOW_VARIABLE
from tests.helpers import managers as doubles
from tests.helpers.managers import config_of

STANDARD = ("directory", "cuda", "tensor", "tokenizer", "data", "batch", "model", "amp", "metrics", "wandb")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> ManagerGraph:
    monkeypatch.setenv(ALLOW_VARIABLE, doubles.ALLOWED)
    return ManagerGraph.read(config_of("lamp", "roof", "house", "ground"))


def test_managers_come_in_the_order_of_building(graph: ManagerGraph) -> None:
    assert list(graph.nodes) == ["ground", "house", "roof", "lamp"]


def test_graphviz_gets_needs_as_lines_and_wishes_dashed(graph: ManagerGraph) -> None:
    lines = command.to_dot(graph).splitlines()

    assert '  "house" -> "ground";' in lines
    assert '  "lamp" -> "roof" [style=dashed];' in lines
    assert '  "roof" [label="roof\\nrank"];' in lines


def test_the_drawing_puts_each_manager_below_what_it_needs(graph: ManagerGraph) -> None:
    drawing = ET.fromstring(command.to_svg(graph))

    texts = {text.text: float(text.attrib["y"]) for text in drawing.iter(f"{SVG}text")}
    assert texts["ground"] < texts["house"] < texts["roof"] < texts["lamp"]
    assert len([path for path in drawing.iter(f"{SVG}path") if "marker-end" in path.attrib]) == 4


def test_boxes_do_not_overlap(graph: ManagerGraph) -> None:
    boxes = [
        (float(r.attrib["x"]), float(r.attrib["y"])) for r in ET.fromstring(command.to_svg(graph)).iter(f"{SVG}rect")
    ]

    assert len(set(boxes)) == 4


def test_the_default_configuration_is_printed_in_the_order_of_building(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0

    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    names = [row[1] for row in rows if row and row[0].isdigit()]
    assert sorted(names) == sorted(STANDARD)
    assert names.index("directory") < names.index("tokenizer") < names.index("data")
    assert names.index("cuda") < names.index("tensor") < names.index("batch")


def test_an_override_changes_the_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--dot", "processes.roles.wandb=[trial,rank]", "processes.roles.metrics=[trial,rank]"]) == 0

    assert '"wandb" [label="wandb\\ntrial rank"]' in capsys.readouterr().out


def test_the_drawing_goes_into_a_file(tmp_path: Path) -> None:
    file = tmp_path / "graph.svg"

    assert command.main(["--svg", str(file)]) == 0
    assert len(list(ET.parse(file).iter(f"{SVG}rect"))) == len(STANDARD)


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("managers/amp=nothing", "managers/amp"),
        ("~managers.cuda", "managers.tensor: needs 'cuda', which is not configured"),
    ],
)
def test_what_cannot_be_built_is_said_with_exit_code_2(
    override: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([override]) == 2
    assert problem in capsys.readouterr().err
