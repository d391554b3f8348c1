"""Compute threads of a tree come to no more than the cores, unless the configuration says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from project.training.ranks import threads_per_rank
from tests.helpers import runs
from tests.helpers.threads import NAMES
from tests.helpers.tree import ROOT

CORES = len(os.sched_getaffinity(0))


@pytest.mark.case("58")
@pytest.mark.parametrize(
    ("threads", "workers", "ranks", "expected"),
    [("auto", 0, 1, CORES), ("auto", 10**4, 1, 1), ("auto", 0, 10**4, 1), (7, 2, 2, 7)],
)
def test_a_rank_has_its_share_of_the_cores_without_its_workers(
    monkeypatch: pytest.MonkeyPatch, threads: str | int, workers: int, ranks: int, expected: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    config = {"processes": {"threads": threads}, "loader": {"num_workers": workers}}

    assert threads_per_rank(config, ranks) == expected


@pytest.mark.parametrize(
    ("wished", "threads", "expected"),
    [("3", "auto", 3), ("3", 7, 7), ("5,2", "auto", 5), ("0", "auto", 1), ("many", "auto", 1), ("", "auto", 1)],
)
def test_a_number_of_threads_that_the_user_exported_holds_unless_the_configuration_has_one(
    monkeypatch: pytest.MonkeyPatch, wished: str, threads: str | int, expected: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", wished)

    assert threads_per_rank({"processes": {"threads": threads}, "loader": {"num_workers": 10**4}}, 1) == expected


@pytest.mark.case("58")
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("start_method", "exported"), [("forkserver", None), ("forkserver", "3"), ("spawn", "3")])
def test_each_process_of_two_ranks_with_two_workers_has_its_share_of_threads(
    start_method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exported: str | None
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if exported:
        (tmp_path / ".env").write_text(f"OMP_NUM_THREADS={exported}\n")
    two = ("trainer=ddp", "loader=workers", "trainer.max_epochs=1", f"processes.start_method={start_method}")
    transform = "+callbacks.note._target_=tests.helpers.threads.Note"
    with runs.started(runs.tiny(tmp_path, *two, transform, f"+callbacks.note.folder={tmp_path}"), tmp_path) as tree:
        assert tree.wait(360) == 0, tree.text
    noted = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.threads")}
    share = exported or str(max(1, CORES // 2 - 2))

    assert set(noted) == {"rank0", "rank1", *(f"rank{rank}-worker{worker}" for rank in (0, 1) for worker in (0, 1))}
    for label, facts in noted.items():
        expected = "1" if "worker" in label else share
        assert facts == {"torch": int(expected)} | dict.fromkeys(NAMES[:3], expected) | {NAMES[3]: "PASSIVE"}, label


def test_an_inline_run_leaves_the_environment_to_the_next() -> None:
    code = """
import os
from project.common.processes.handover import THREAD_VARIABLES, thread_variables_kept
from project.training import trial

def look(*arguments, **options):
    trial.process_entry.limit_threads(3)
    return {name: os.environ[name] for name in THREAD_VARIABLES}

trial._as_rank = look
os.environ["MKL_NUM_THREADS"] = "5"
from project.common.processes.identity import Identity, Role
said = trial.run_inline({"managers": {}}, Identity(role=Role.TRIAL))
assert set(said.values()) == {"3"}, said
assert {name: os.environ.get(name) for name in THREAD_VARIABLES} == {
    "OMP_NUM_THREADS": None, "OPENBLAS_NUM_THREADS": None, "MKL_NUM_THREADS": "5"
}
"""
    environ = {name: value for name, value in os.environ.items() if name not in NAMES}

    subprocess.run([sys.executable, "-c", code], env=environ, cwd=ROOT, timeout=90, check=True)


def test_an_inline_run_waits_quietly_and_keeps_the_environment() -> None:
    code = """
import os, sys
before = dict(os.environ)
from project.training.trial import _import_torch_quietly
assert "torch" not in sys.modules
_import_torch_quietly()
assert dict(os.environ) == before
"""
    environ = {name: value for name, value in os.environ.items() if name not in NAMES}
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=environ | {"OMP_DISPLAY_ENV": "true"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )

    assert "OMP_WAIT_POLICY = 'PASSIVE'" in result.stderr
