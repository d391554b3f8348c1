"""What there is to configure is shown by a command, and completed by the shell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from project import config
from project.common.config_files import groups
from tests.helpers.training import ROOT


def test_every_choice_stands_in_the_overview_with_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert config.main([]) == 0

    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "* default Mixed precision, by what the device can do." in lines
    assert "bf16 Autocast to bfloat16, needs no gradient scaler." in lines
    assert "+ trivial No model: exercises the process tree in a second." in lines
    assert {group.name for group in groups()} <= set(lines)
    assert len([line for line in lines if line.startswith("* ")]) >= 18
    assert all(comment for group in groups() if group.name != "local" for comment in group.choices.values())


def test_a_group_shows_the_keys_of_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert config.main(["managers/amp"]) == 0
    assert "\ndtype: auto # auto (CUDA" in capsys.readouterr().out

    assert config.main(["experiment", "trivial"]) == 0
    assert "\n+experiment=trivial:\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["manager/amp"], "manager/amp: is no group; did you mean 'managers/amp'? there are callbacks"),
        (["managers/amp", "bf17"], "managers/amp=bf17: there is no such choice; did you mean 'bf16'? there are bf16"),
    ],
)
def test_what_is_not_there_is_refused(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert config.main(arguments) == 2
    assert capsys.readouterr().err.startswith(text)


@pytest.mark.slow
def test_bash_completes_groups_choices_and_keys(python_on_path: dict[str, str]) -> None:
    """It completed nothing: Hydra's function wants to find `@hydra.main` in the file that is named."""
    script = """
        eval "$(python train.py --shell-completion install=bash)"
        for line in "python train.py managers/amp=" "python train.py trainer.max_e"; do
            export COMP_LINE="$line" COMP_POINT=${#line}
            COMP_WORDS=($line) COMP_CWORD=2 COMPREPLY=()
            hydra_bash_completion
            echo "${COMPREPLY[*]}"
        done
    """
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env=python_on_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )

    assert done.stdout.splitlines() == [
        "managers/amp=bf16 managers/amp=default managers/amp=fp16 managers/amp=fp32",
        "trainer.max_epochs=",
    ]


@pytest.fixture
def python_on_path() -> dict[str, str]:
    """An environment in which `python` is this one."""
    folder = str(Path(sys.executable).parent)
    return dict(os.environ) | {"PATH": os.pathsep.join((folder, os.environ["PATH"]))}
