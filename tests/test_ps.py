"""The process table: what it shows of living, ended and killed processes, and whom `--reap` may end."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from project import ps
from project.common import live_runs
from project.common.files.layout import RunLayout
from project.common.process_registry import ProcessRecord
from project.common.processes.identity import Identity, ProcessKey, Role
from tests.helpers.waiting import until


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    yield process
    process.kill()
    process.wait(10)


@pytest.fixture
def _no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ps, "memory_by_process", dict)


def key_of(pid: int) -> ProcessKey:
    key = ProcessKey.of(pid)
    assert key is not None
    return key


def gone() -> ProcessKey:
    return replace(ProcessKey.own(), start_time="0")


def write(
    run_dir: Path, key: ProcessKey, role: Role, *, rank: int | None = None, world_size: int = 2, **more: Any
) -> None:
    layout = RunLayout(run_dir)
    layout.processes_dir.mkdir(parents=True, exist_ok=True)
    now = time.time()
    record = ProcessRecord(
        key=key,
        identity=Identity(role=role, rank=rank, world_size=world_size, run_dir=str(run_dir)),
        parent_pid=1,
        started=now - 60,
        history=[("starting", now - 60), ("training", now - 50)],
        **more,
    )
    layout.process_record(record.identity.label, key.pid).write_text(json.dumps(record.as_dict()))


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    assert ps.main(list(arguments)) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_the_table_is_in_tree_order_with_what_each_uses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = {"step": 7.0, "time": time.time() - 3}
    write(tmp_path, ProcessKey.own(), Role.RANK, rank=0, heartbeat=beat)
    write(tmp_path, replace(gone(), pid=8), Role.RANK, rank=1, heartbeat={"step": 6.0, "time": time.time() - 30})
    ended = {"status": "completed", "exit_code": 0, "time": time.time() - 1}
    write(tmp_path, replace(gone(), pid=9), Role.MAIN, outcome=ended)
    monkeypatch.setattr(ps, "memory_by_process", lambda: {os.getpid(): 1536.0})

    head, main, rank0, rank1 = shown(capsys, str(tmp_path))[-4:]

    assert head == ["process", "pid", "state", "age", "cpu", "memory", "gpu", "memory", "step", "heartbeat"]
    assert main[:3] == ["main", "9", "completed"]
    assert rank0[:5] == ["rank0", str(os.getpid()), "training", "60", "s"]
    assert rank0[-6:-3] == ["1536", "MB", "7"]
    assert rank0[-1] == "ago"
    assert rank1 == ["rank1", "8", "killed", "30", "s", "6"]


@pytest.mark.usefixtures("_no_devices")
def test_plain_data_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, ProcessKey.own(), Role.RANK, rank=0)

    ps.main([str(tmp_path), "--json"])

    ((run,), (row,)) = (lambda found: (found, found[0]["processes"]))(json.loads(capsys.readouterr().out))
    assert run["run_dir"] == str(tmp_path)
    assert (row["state"], row["identity"]["rank"], row["key"]["pid"]) == ("training", 0, os.getpid())
    assert row["memory_mb"] > 1
    assert row["gpu_memory_mb"] is None


@pytest.mark.usefixtures("_no_devices")
def test_no_column_for_devices_that_nobody_uses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, ProcessKey.own(), Role.RANK, rank=0)

    assert "gpu" not in shown(capsys, str(tmp_path))[-2]


@pytest.mark.usefixtures("_no_devices")
def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nowhere: no such run folder"):
        ps.main([str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit, match="no process of a run is recorded there"):
        ps.main([str(tmp_path), "--timeline"])


def test_reaping_ends_what_a_gone_main_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sleeper: "subprocess.Popen[bytes]"
) -> None:
    write(tmp_path, key_of(sleeper.pid), Role.RANK, rank=0)
    pointer = live_runs.point_to_run(str(tmp_path), gone())

    assert ps.main(["--reap"]) == 0

    assert sleeper.wait(10) < 0
    assert f"ended rank0 (pid {sleeper.pid})" in capsys.readouterr().out
    assert pointer is not None
    assert not pointer.exists()


@pytest.mark.parametrize("why", ["main lives", "pid was given again", "another host"])
def test_reaping_touches_nothing_else(tmp_path: Path, sleeper: "subprocess.Popen[bytes]", why: str) -> None:
    key = key_of(sleeper.pid)
    main = ProcessKey.own() if why == "main lives" else gone()
    if why == "pid was given again":
        key = replace(key, start_time="1")
    if why == "another host":
        key, main = replace(key, host="elsewhere"), replace(main, host="elsewhere")
    write(tmp_path, key, Role.RANK, rank=0)
    pointer = live_runs.point_to_run(str(tmp_path), main)
    assert pointer is not None

    ps.main(["--reap"])

    assert sleeper.poll() is None
    assert pointer.exists() is (why != "pid was given again")
    pointer.unlink(missing_ok=True)


def test_watching_shows_again_in_place_until_interrupted(tmp_path: Path) -> None:
    write(tmp_path, ProcessKey.own(), Role.RANK, rank=0)
    here, there = os.openpty()
    environ = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    command = [sys.executable, "-m", "project.ps", str(tmp_path), "--watch"]
    process = subprocess.Popen(command, stdout=there, stderr=there, env=environ)
    os.close(there)
    output = b""
    try:
        deadline = time.monotonic() + 30
        while output.count(b"rank0") < 3 and time.monotonic() < deadline:
            output += os.read(here, 65536)
        process.send_signal(2)
        assert until(lambda: (process.poll(),) if process.poll() is not None else None, 10, what="its end") == (0,)
    finally:
        process.kill()
        process.wait(10)
        os.close(here)

    assert output.count(b"rank0") >= 3
    assert b"\x1b[1A" in output, "the cursor goes up again"


@pytest.mark.parametrize(("world_size", "label"), [(1, "  trial/rank0"), (2, "    rank0")])
def test_with_one_device_one_row_is_trial_and_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], world_size: int, label: str
) -> None:
    write(tmp_path, ProcessKey.own(), Role.RANK, rank=0, world_size=world_size)

    ps.main([str(tmp_path)])

    assert capsys.readouterr().out.splitlines()[2].startswith(f"{label} ")
