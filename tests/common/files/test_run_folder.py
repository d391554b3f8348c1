"""Which folder a run gets: a new one, or the newest unfinished one of the same configuration whose owner is gone."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from project.common.errors import ConfigError
from project.common.files.run_folder import RunFolder, choose_run_folder, fingerprint
from project.common.files.secrets import mask_config
from project.common.process_registry import ProcessRecord
from project.common.processes.identity import Identity, ProcessKey, Role


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return {"name": "x", "seed": 1, "resume": "auto", "paths": {"runs_dir": str(tmp_path / "runs")}, "managers": {}}


@pytest.fixture(autouse=True)
def _released() -> Iterator[list[RunFolder]]:
    taken: list[RunFolder] = []
    yield taken
    for folder in taken:
        folder.lock.release()


@pytest.fixture
def choose(_released: list[RunFolder]) -> Any:
    def choose_and_note(config: dict[str, Any], **changes: Any) -> RunFolder:
        folder = choose_run_folder(config | changes)
        _released.append(folder)
        return folder

    return choose_and_note


def end(folder: RunFolder, status: str | None) -> None:
    if status is not None:
        folder.layout.outcome.write_text(json.dumps({"status": status}))
    folder.lock.release()


def test_a_new_run_gets_a_folder_with_its_time_and_owns_it(config: dict[str, Any], choose: Any) -> None:
    folder = choose(config)

    assert folder.layout.run_dir.parent == Path(config["paths"]["runs_dir"]) / "x"
    assert folder.attempt == 1
    assert folder.found is None
    assert ":" not in folder.layout.run_dir.name


@pytest.mark.parametrize(
    ("status", "found"),
    [("interrupted", "interrupted"), ("crashed", "crashed"), ("refused", "refused"), (None, "killed")],
)
def test_takes_up_what_did_not_finish(config: dict[str, Any], choose: Any, status: str | None, found: str) -> None:
    """A folder that had begun stays when a later attempt is refused, for its data say, and is worth going on in."""
    first = choose(config)
    end(first, status)

    second = choose(config)

    assert second.layout == first.layout
    assert (second.attempt, second.found) == (2, found)


def test_leaves_what_is_finished(config: dict[str, Any], choose: Any) -> None:
    first = choose(config)
    end(first, "completed")

    assert choose(config).layout != first.layout


def test_leaves_what_another_process_owns(config: dict[str, Any], choose: Any) -> None:
    first = choose(config)

    assert choose(config).layout != first.layout


def test_leaves_another_configuration_and_obeys_never(config: dict[str, Any], choose: Any) -> None:
    first = choose(config)
    end(first, "crashed")

    assert choose(config, seed=2).layout != first.layout
    assert choose(config, resume="never").layout != first.layout


def test_takes_the_newest_one(config: dict[str, Any], choose: Any) -> None:
    folders = [choose(config) for _ in range(2)]
    for folder in folders:
        end(folder, "crashed")

    assert choose(config).layout.run_dir == max(folder.layout.run_dir for folder in folders)


def test_counts_attempts_by_what_records_say(config: dict[str, Any], choose: Any) -> None:
    """In a container main has the same pid, hence the same record, at every attempt: counting files gave 2 for ever."""
    first = choose(config)
    identity = Identity(role=Role.MAIN, run_dir=str(first.layout.run_dir), attempt=4)
    record = ProcessRecord(key=ProcessKey.own(), identity=identity, parent_pid=1, started=1.0)
    first.layout.process_record("main", os.getpid()).write_text(json.dumps(record.as_dict()))
    end(first, "crashed")

    assert choose(config).attempt == 5


def test_removes_what_a_killed_writer_left(config: dict[str, Any], choose: Any) -> None:
    first = choose(config)
    half = first.layout.checkpoints_dir / "last.ckpt.tmp-999999999-1"
    half.write_bytes(b"half")
    end(first, None)

    choose(config)

    assert not half.exists()


def test_the_fingerprint_ignores_where_and_how_but_not_what(config: dict[str, Any]) -> None:
    same = config | {"resume": "never", "tags": ["a"], "paths": {}, "processes": {"start_method": "spawn"}, "logger": 1}
    moved = config | {"managers": {"directory": {"runs_dir": "/a", "cache_dir": "/b"}, "wandb": {"mode": "online"}}}
    there = config | {"managers": {"directory": {"runs_dir": "/c", "cache_dir": "/d"}}}

    assert fingerprint(same) == fingerprint(config)
    assert fingerprint(moved) == fingerprint(there)
    assert fingerprint(config | {"seed": 2}) != fingerprint(config)


def test_workers_only_prepare_what_is_the_same_without_them(config: dict[str, Any]) -> None:
    loader = {"batch_size": 4, "num_workers": 0, "prefetch_factor": 2}

    assert fingerprint(config | {"loader": loader | {"num_workers": 8}}) == fingerprint(config | {"loader": loader})
    assert fingerprint(config | {"loader": loader | {"batch_size": 8}}) != fingerprint(config | {"loader": loader})


def test_a_named_folder_of_another_configuration_is_told_with_what_differs(config: dict[str, Any], choose: Any) -> None:
    config |= {"trainer": {"devices": 2}, "user": {"api_key": "abc"}, "loader": {"num_workers": 1}}
    first = choose(config)
    first.layout.config.write_text(yaml.safe_dump(mask_config(config)))
    end(first, "crashed")

    with pytest.raises(ConfigError) as caught:
        choose(config, resume=str(first.layout.run_dir), trainer={"devices": 3}, loader={"num_workers": 2})

    assert str(caught.value) == (
        f"resume: {first.layout.run_dir} ran another configuration (trainer.devices: 2, not 3); give these back, or "
        "start a new run from its checkpoint with ckpt_path="
    )


def test_a_named_folder_is_taken_up_also_when_finished(config: dict[str, Any], choose: Any) -> None:
    first = choose(config)
    end(first, "completed")

    assert choose(config, resume=str(first.layout.run_dir)).layout == first.layout


def test_a_named_folder_that_cannot_be_taken_up_is_said(config: dict[str, Any], choose: Any, tmp_path: Path) -> None:
    first = choose(config)

    for resume, changes, words in (
        (tmp_path, {}, "is not a run folder"),
        (first.layout.run_dir, {"seed": 2}, "ran another configuration"),
        (first.layout.run_dir, {}, "is owned by a running process"),
    ):
        with pytest.raises(ConfigError, match=f"^resume: .*{words}"):
            choose(config, resume=str(resume), **changes)


def test_a_place_that_cannot_be_written_is_said_and_nothing_is_left(config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")

    with pytest.raises(ConfigError, match=r"^paths.runs_dir: .* cannot be written to"):
        choose_run_folder(config)
    assert (tmp_path / "runs").read_text() == "a file"
