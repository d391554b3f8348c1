"""`python train.py` as its users start and watch it: real commands, each in a session of its own."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from project.common.files.checkpoint_file import load_checkpoint_file
from project.common.files.layout import RunLayout
from project.common.process_registry import read_run
from tests.helpers.runs import outcome, run_folder, started, tiny, trivial, wait_for_step
from tests.helpers.training import ROOT
from tests.helpers.tree import Tree, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PACED = {"PACE_S": "0.2"}
TWO_BY_TWO = ("trainer.devices=2", "loader.num_workers=2")
SECRET = "hunter2-hunter2"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, _session: None) -> tuple[int, str, RunLayout]:
    """Exit code, output and folder of a training with two ranks, two workers each, and a secret."""
    folder = tmp_path_factory.mktemp("finished")
    command = tiny(folder, *TWO_BY_TWO, "logger=csv", f"+user.api_key={SECRET}", "trainer.max_epochs=2")
    with started(command, folder, environ={"MY_API_TOKEN": SECRET + "env"}) as tree:
        code = tree.wait(120)
        tree.assert_nothing_left()
        return code, tree.text, run_folder(folder)


Finished = tuple[int, str, RunLayout]


def test_a_run_prints_its_metrics_and_folder_last(finished: Finished) -> None:
    code, text, layout = finished
    lines = text.splitlines()

    assert code == 0, text
    assert lines[-1] == f"run folder: {layout.run_dir}"
    assert re.search(r"model.*val/acc.*test/acc", lines[-5])
    assert re.search(r"^│ ModernBert\S* +│ \d\.\d{4} ", lines[-3])
    assert "Traceback" not in text
    assert "Warning" not in text


def test_a_run_writes_what_it_promises(finished: Finished) -> None:
    _, _, layout = finished
    config = yaml.safe_load(layout.config.read_text())
    overrides = yaml.safe_load(layout.overrides.read_text())
    final = json.loads(layout.metrics.read_text())
    history = [json.loads(line) for line in layout.metrics_history.read_text().splitlines()]
    end = outcome(layout)

    assert config["trainer"]["max_epochs"] == 2
    assert "trainer.max_epochs=2" in overrides
    assert {"train/loss", "val/loss", "val/acc", "test/loss", "test/acc"} <= final.keys()
    assert [line["step"] for line in history if "val/acc" in line] == [4, 8]  # as many batches on every rank
    assert (layout.run_dir / "metrics.csv").read_text().count("\n") > 2
    assert (end["status"], end["exit_code"], end["attempts"], end["fallback"]) == ("completed", 0, 1, None)
    assert end["result"]["metrics"] == final
    assert end["versions"].keys() >= {"python", "torch", "lightning"}
    assert load_checkpoint_file(layout.checkpoint("last"))["global_step"] == 8
    assert load_checkpoint_file(layout.checkpoint("best"))["global_step"] in (4, 8)
    assert json.loads(layout.timeline.read_text())


def test_every_process_leaves_a_record_an_outcome_and_a_log(finished: Finished) -> None:
    _, _, layout = finished
    records = {record.identity.label: record for record in read_run(layout.run_dir)}

    workers = {f"rank{rank}-worker{worker}" for rank in (0, 1) for worker in (0, 1)}
    assert records.keys() == {"main", "server", "trial", "rank0", "rank1", *workers}
    assert {(record.outcome or {}).get("status") for record in records.values()} == {"completed"}
    records.pop("server")  # it knows no run and writes no log of its own
    for label, record in records.items():
        assert layout.process_log(label, record.key.pid).exists()
    assert not list(layout.run_dir.rglob("*.tmp-*"))
    assert not layout.owner.exists()


def test_no_secret_is_in_any_file_of_a_run(finished: Finished) -> None:
    _, text, layout = finished
    files = [path for path in layout.run_dir.rglob("*") if path.is_file()]

    assert len(files) > 15
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in text


@pytest.mark.case("52")
def test_main_never_imports_torch(tmp_path: Path) -> None:
    code = (
        "import sys, project.train\n"
        "try:\n    project.train.main()\n"
        "finally:\n    print('HEAVY', [m for m in ('torch', 'pyarrow', 'lightning', 'datasets', 'optuna')"
        " if m in sys.modules])"
    )
    with started(["python", "-c", code, *trivial(tmp_path)[2:]], tmp_path, environ={"PYTHONPATH": str(ROOT)}) as tree:
        assert tree.wait(90) == 0, tree.text

        assert "HEAVY []" in tree.text


def see(tree: Tree, folder: Path) -> dict[str, Any]:
    """What `ps` and /proc show of a running tree."""
    titles = [" ".join(process.cmdline()) for process in tree.processes()]
    main = psutil.Process(tree.pid)
    return {
        "labels": sorted(t.split()[1] for t in titles if t.startswith("project: ")),
        "servers": sum(title.startswith("project: server") for title in titles),
        "main_mb": main.memory_info().rss / 2**20,
        "main_maps": Path(f"/proc/{tree.pid}/maps").read_text(),
        "others": [title for title in titles if not title.startswith("project: ") and "resource_tracker" not in title],
    }


@pytest.mark.case("02", "18")
def test_the_tree_is_as_drawn_stops_at_sigterm_and_goes_on(tmp_path: Path) -> None:
    command = tiny(tmp_path, *TWO_BY_TWO)
    with started(command, tmp_path, environ=PACED) as tree:
        records = wait_for_step(tree, tmp_path, 2)
        seen = see(tree, tmp_path)
        tree.signal(signal.SIGTERM)
        code = tree.wait(10)
        tree.assert_nothing_left(1)
        text = tree.text
    stopped = outcome(run_folder(tmp_path))
    again, text_again = to_the_end(command, tmp_path)

    workers = [f"rank{rank}-worker{worker}" for rank in (0, 1) for worker in (0, 1)]
    assert seen["labels"] == sorted(["server", "reaper", "trial", "rank0", "rank1", *workers])
    assert {*records} == {"main", "server", "trial", "rank0", "rank1", *workers}
    assert seen["servers"] == 1
    assert len(seen["others"]) == 1, seen["others"]  # main shows its command line
    assert "torch" not in seen["main_maps"]
    assert seen["main_mb"] <= 120
    assert code == 143, text
    assert text.splitlines()[-1] == "interrupted: SIGTERM"
    assert (stopped["status"], stopped["exit_code"]) == ("interrupted", 143)
    assert again == 0, text_again
    assert text_again.startswith("goes on (attempt 2, found interrupted): ")
    assert outcome(run_folder(tmp_path))["attempts"] == 2


def to_the_end(command: list[str], folder: Path) -> tuple[int, str]:
    """Exit code and output of a command that is left alone."""
    with started(command, folder) as tree:
        code = tree.wait(120)
        tree.assert_nothing_left()
        return code, tree.text


def test_ps_shows_and_reaps_nothing_of_a_finished_run(finished: Finished) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "project.ps", "--json"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    assert str(finished[2].run_dir) not in shown.stdout


@pytest.mark.parametrize("redirection", ["> /dev/full", "2> /dev/full", "| true", "2>&1 | true"])
def test_output_that_cannot_be_written_changes_nothing_about_how_the_run_ended(
    tmp_path: Path, redirection: str
) -> None:
    """Printing the table failed, so a completed run ended with exit code 1, as did one with a closed terminal."""
    options = f"+experiment=trivial managers/wandb=disabled paths.runs_dir='{tmp_path}/runs'"
    command = f"set -o pipefail; '{sys.executable}' train.py {options} {redirection}"
    with running(["bash", "-c", command], output=tmp_path / "out") as tree:
        assert tree.wait(60) == 0
        tree.assert_nothing_left()

    assert "Traceback" not in tree.text


@pytest.mark.parametrize("value", ["${name}", "${oc.env:NOT_SET_ANYWHERE}", "${nothing.there}"])
def test_a_reference_that_leads_nowhere_is_refused_with_its_key(tmp_path: Path, value: str) -> None:
    """It ended in a page of traceback and exit code 1."""
    with started(trivial(tmp_path, f"name={value}"), tmp_path) as tree:
        assert tree.wait(30) == 2
        tree.assert_nothing_left()

    assert tree.text.startswith("name: ")
    assert "Traceback" not in tree.text
