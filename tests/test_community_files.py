"""The files around the code are what the tools that read them expect, and true."""

import re
from pathlib import Path

import pytest
import yaml

from tests.helpers.training import ROOT

FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_has_what_github_asks_for(form: Path) -> None:
    content = yaml.safe_load(form.read_text())

    assert {"name", "description", "body"} <= content.keys()
    fields = [item for item in content["body"] if item["type"] != "markdown"]
    assert all(item["attributes"]["label"] for item in fields)
    assert len({item["id"] for item in fields}) == len(fields)
    assert any(item.get("validations", {}).get("required") for item in fields)


def test_there_are_two_forms() -> None:
    assert [form.stem for form in FORMS] == ["fault", "idea"]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_links_to_and_calls_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))

    assert all((ROOT / link).exists() for link in re.findall(r"\]\((?!https)([\w./-]+)\)", text))
    assert set(re.findall(r"make ([a-z-]+)", text)) <= targets
