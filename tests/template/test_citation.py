"""How the template wants to be cited."""

import yaml

import project
from tests.helpers.packages import ROOT


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())

    assert citation["cff-version"] == "1.2.0"
    assert str(citation["version"]) == project.__version__
    assert citation["license"] == "Apache-2.0"
    assert {"message", "title", "authors"} <= citation.keys()
