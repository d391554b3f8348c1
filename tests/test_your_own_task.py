"""The page that adds a task, followed to the letter in a copy of the repository."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.helpers.training import ROOT
from tests.helpers.tree import running

PAGE = (ROOT / "docs" / "your_own_task.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
(COMMANDS,) = re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_a_task_that_is_added_as_the_page_says_trains_and_predicts(tmp_path: Path) -> None:
    from pyarrow import parquet

    for name in ("project", "conf"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "local"))
    for name in ("train.py", "predict.py"):
        shutil.copy(ROOT / name, tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    environ = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path),
        "WANDB_MODE": "disabled",
    }

    with running(["bash", "-ec", COMMANDS], output=tmp_path / "output", environ=environ, cwd=tmp_path) as tree:
        code = tree.wait(110)
        tree.assert_nothing_left()

    assert code == 0, tree.text
    assert len(FILES) == 6
    assert "2 passed" in tree.text
    assert "LastState" in tree.text
    predictions = parquet.read_table(tmp_path / "new.predictions.parquet").to_pydict()
    assert predictions["text"] == ["mcmxciv", "mmxxvii"]
    assert predictions["label"] == ["even", "odd"]
