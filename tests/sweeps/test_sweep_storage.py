"""A real sweep and its storage: where it lies, an outage in the middle, and passwords that nobody gets to see."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.helpers import sweeps
from tests.helpers.postgres import Server
from tests.helpers.runs import started
from tests.helpers.sweep_tasks import SLOW
from tests.helpers.sweeps import ended, trivial_sweep, wait_for_trials
from tests.helpers.training import ROOT
from tests.helpers.tree import Tree
from tests.helpers.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SEEDS = ("seed=range(1,9)", "hydra.sweeper.n_trials=4")
PASSWORD = "hunter2-hunter2"


def test_a_server_that_is_stopped_and_started_again_costs_nothing(postgres: Server, tmp_path: Path) -> None:
    storage = f"hydra.sweeper.storage='{postgres.url()}'"
    command = trivial_sweep(tmp_path, *SEEDS, "task.run.steps=10", "hydra.sweeper.n_jobs=2", storage)
    with started(command, tmp_path, environ={SLOW: "0"}) as tree:
        wait_for_trials(tree, tmp_path, 0, 1)
        postgres.stop()
        tree.wait_until_written("does not answer", 60)
        ends = [layout.outcome for layout in sweeps.trial_folders(tmp_path).values()]
        postgres.start()
        code = tree.wait(120)
        text = tree.text
        until(lambda: not [it for it in tree.processes() if it.name() != "postgres"], 5, what="end of the tree")
        counts = sweeps.counts(tmp_path)  # here: the new server began within, and ends with the rest

    assert code == 0, text
    assert ends
    assert text.count("does not answer") == 1, text
    assert "Traceback" not in text
    assert (counts.complete, counts.counted, counts.superseded) == (4, 4, 0)


def test_a_server_that_stays_away_ends_the_sweep_in_order_and_it_goes_on_later(
    postgres: Server, tmp_path: Path
) -> None:
    """What had completed meanwhile could not be told: the next start reads it from the trial's own outcome."""
    more = (f"hydra.sweeper.storage='{postgres.url()}'", "hydra.sweeper.storage_timeout_s=4")
    command = trivial_sweep(tmp_path, *SEEDS, "task.run.steps=3", *more)
    with started(command, tmp_path, environ={SLOW: "1"}) as tree:
        wait_for_trials(tree, tmp_path, 1)
        postgres.stop()
        code = tree.wait(60)
        tree.assert_nothing_left(2)
        text = tree.text
    postgres.start()
    again, text_again = ended(command, tmp_path)

    assert code == 1, text
    assert "The same command takes up what was not finished" in text.splitlines()[-1]
    assert "Traceback" not in text
    assert again == 0, text_again
    counts = sweeps.counts(tmp_path)
    assert (counts.complete, counts.counted, counts.running, counts.superseded) == (4, 4, 0, 0)
    assert "had completed, and is told now" in text_again


def everything_below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def arguments_of_children(tree: Tree) -> str:
    texts = []
    for process in tree.processes():
        try:
            texts += process.cmdline() if process.pid != tree.pid else []
        except psutil.Error:
            continue
    return " ".join(texts)


SECRETS = {
    "in the address": ("postgresql://tester:{}@/postgres?host={}", {}),
    "in the query": ("postgresql://tester@/postgres?host={1}&password={0}", {}),
    "in PROJECT_STORAGE": (None, {"PROJECT_STORAGE": "postgresql://tester:{}@/postgres?host={}"}),
    "in PGPASSWORD": ("postgresql://tester@/postgres?host={1}", {"PGPASSWORD": "{}"}),
}


@pytest.mark.parametrize("place", SECRETS)
def test_a_password_of_the_storage_is_seen_nowhere(postgres: Server, tmp_path: Path, place: str) -> None:
    address, environ = SECRETS[place]
    environ = {name: text.format(PASSWORD, postgres.folder) for name, text in environ.items()}
    storage = [] if address is None else [f"hydra.sweeper.storage='{address.format(PASSWORD, postgres.folder)}'"]
    wandb = ("logger=wandb", "managers.wandb.mode=offline")
    command = trivial_sweep(tmp_path, "seed=range(1,9)", "hydra.sweeper.n_trials=2", *wandb, *storage)
    with started(command, tmp_path, environ={SLOW: "0"} | environ) as tree:
        wait_for_trials(tree, tmp_path, 0)
        shown = arguments_of_children(tree)
        code = tree.wait(90)
        tree.assert_nothing_left()
        text = tree.text
    report = subprocess.run(
        [sys.executable, "-m", "project.report", str(sweeps.sweep_dir(tmp_path))],
        cwd=ROOT,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    tables = postgres.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").split()
    stored = "\n".join(postgres.sql(f"TABLE {table}") for table in tables)

    assert code == 0, text
    assert report.returncode == 0, report.stderr
    assert (sweeps.sweep_dir(tmp_path) / "report.html").is_file()
    assert len(tables) > 5
    assert [name for name, content in everything_below(tmp_path).items() if PASSWORD.encode() in content] == []
    for text_of_all in (text, shown, stored, report.stdout, report.stderr):
        assert PASSWORD not in text_of_all


@pytest.mark.case("63")
def test_by_default_the_study_lies_in_the_folder_of_the_sweep(tmp_path: Path) -> None:
    code, text = ended(trivial_sweep(tmp_path, *SEEDS), tmp_path)

    assert code == 0, text
    assert (tmp_path / "sweeps/trivial/study.db").is_file()
    assert f"sqlite:///{tmp_path}/sweeps/trivial/study.db" in text
    assert "make dashboard SWEEP=sweeps/trivial" in text


@pytest.mark.case("63")
@pytest.mark.parametrize("chdir", ["false", "true"])
def test_a_relative_address_counts_from_where_the_command_was_typed(tmp_path: Path, chdir: str) -> None:
    storage = "hydra.sweeper.storage='sqlite:///new folder/50%/study.db'"
    code, text = ended(trivial_sweep(tmp_path, *SEEDS, storage, f"hydra.job.chdir={chdir}"), tmp_path)

    assert code == 0, text
    assert (tmp_path / "new folder/50%/study.db").is_file()
    assert set(sweeps.trial_folders(tmp_path)) == set(range(4))
    assert all(sweeps.is_whole(layout) for layout in sweeps.trial_folders(tmp_path).values())
    assert sweeps.counts(tmp_path).complete == 4
