"""Hydra's own parser takes null among the arguments of `choice`."""

import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from project.sweeps.search.null_choices import allow_null_choices
from tests.helpers.training import ROOT

PARSE = (
    "from hydra.core.override_parser.overrides_parser import OverridesParser as P; P.create().parse_overrides(['{}'])"
)


def test_null_may_be_a_choice_however_often_it_is_allowed() -> None:
    allow_null_choices()
    allow_null_choices()

    (override,) = OverridesParser.create().parse_overrides(["x=choice(null,1,[null])"])
    assert list(override.sweep_string_iterator()) == ["null", "1", "[null]"]


@pytest.mark.slow
def test_hydra_alone_refuses_it() -> None:
    """Once this fails, `allow_null_choices` has become needless."""
    ended = subprocess.run(
        [sys.executable, "-c", PARSE.format("x=choice(null,1)")], capture_output=True, timeout=60, check=False
    )

    assert b"NoneType is incompatible" in ended.stderr


@pytest.mark.slow
def test_null_may_be_a_choice_on_our_command_line(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "train.py"), "-m", "ckpt_path=choice(null,a)", "nonsense=1"]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=False, cwd=tmp_path)

    assert b"NoneType" not in ended.stderr
    assert b"Could not override 'nonsense'" in ended.stderr
    assert ended.returncode == 2
