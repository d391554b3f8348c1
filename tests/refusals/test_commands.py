"""What the commands print, and their exit codes, when what was given will not do."""

import os
from pathlib import Path

import pytest

from tests.helpers.training import ROOT, TINY, with_task
from tests.helpers.tree import running


def refusal_of_command(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output of train.py."""
    with running(["python", str(ROOT / "train.py"), *arguments], output=tmp_path / "output", cwd=tmp_path) as tree:
        code = tree.wait(90)
        tree.assert_nothing_left()
        return code, tree.text


COMMANDS = {
    "managers/amp=bf17": "Could not find 'managers/amp/bf17'",
    "trainer.max_epoch=3": "Did you mean one of: 'max_epochs'",
    "manager/amp=bf16": "Did you mean: 'managers'?",
    "processes.start_method=fork": "processes.start_method: 'fork' copies locks",
}


@pytest.mark.slow
@pytest.mark.parametrize(("argument", "text"), COMMANDS.items(), ids=COMMANDS.keys())
def test_a_refused_command_line_ends_with_code_2_and_without_a_traceback(
    tmp_path: Path, argument: str, text: str
) -> None:
    code, output = refusal_of_command(tmp_path, argument)

    assert code == 2
    assert text in output
    assert "Traceback" not in output
    assert os.listdir(tmp_path) == ["output"]


@pytest.mark.slow
def test_refused_data_ends_the_command_with_its_text_last(tmp_path: Path) -> None:
    (tmp_path / "my.jsonl").write_text("{}\n")

    code, output = refusal_of_command(
        tmp_path,
        *with_task([item for item in TINY if "task.data" not in item]),
        "task.data.files=my.jsonl",
        "paths.cache_dir=c",
    )

    assert code == 2
    assert output.splitlines()[-1].startswith("task.data.files: ")
    assert "my.jsonl line 1: no field 'text'" in output.splitlines()[-1]
    assert "Traceback" not in output
    assert not (tmp_path / "runs").exists()
