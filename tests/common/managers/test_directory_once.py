"""What is made once in the cache, by one process, and waited for by the others."""

import logging
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from project.common.errors import ProjectError
from project.common.files import once
from project.common.processes import stop
from tests.helpers.directory import build_slowly, make_with_others, manager
from tests.helpers.waiting import until

LIMIT_S = 60.0


pytestmark = pytest.mark.usefixtures("main_process")


def start(path: Path) -> multiprocessing.process.BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=make_with_others, args=(path,))
    process.start()
    return process


@pytest.mark.case("87")
def test_exactly_one_of_several_processes_builds_and_the_others_say_that_they_wait(tmp_path: Path) -> None:
    target = tmp_path / "data"
    processes = [start(target) for _ in range(3)]
    until((tmp_path / "started").exists, LIMIT_S)
    builder = (tmp_path / "built-by").read_text().strip()
    others = [process.pid for process in processes if str(process.pid) != builder]
    message = f"waiting for {target}, which process {builder} is making"
    until(lambda: all(message in read(tmp_path / f"log-{pid}") for pid in others), LIMIT_S)
    (tmp_path / "go").touch()
    for process in processes:
        process.join(LIMIT_S)

    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "built-by").read_text().split() == [builder]
    assert (target / "second").read_text() == "whole"


@pytest.mark.case("87")
def test_what_a_killed_process_left_half_made_is_removed_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "data"
    process = start(target)
    until((tmp_path / "started").exists, LIMIT_S)
    process.kill()
    process.join(LIMIT_S)
    assert not target.exists()
    assert list(tmp_path.glob(".data.tmp-*"))

    (tmp_path / "go").touch()
    once.create_once(target, build_slowly, timeout_s=LIMIT_S)

    assert (target / "second").read_text() == "whole"
    assert not list(tmp_path.glob(".data.tmp-*"))
    assert "left behind by a process that ended while making it" in caplog.text
    assert len((tmp_path / "built-by").read_text().split()) == 2


def test_waiting_has_a_limit_and_names_the_process(tmp_path: Path) -> None:
    process = start(tmp_path / "data")
    until((tmp_path / "started").exists, LIMIT_S)

    with pytest.raises(once.BuildTimeoutError, match=rf"process {process.pid} has been making it for more than"):
        once.create_once(tmp_path / "data", build_slowly, timeout_s=0.2)
    process.kill()
    process.join(LIMIT_S)


def test_waiting_obeys_a_request_to_stop(tmp_path: Path) -> None:
    with once.locked(tmp_path / "data", timeout_s=1):
        stop.request_stop(stop.StopRequest(reason="SIGTERM", exit_code=143, deadline=time.monotonic() + 10))
        try:
            with pytest.raises(stop.StopRequested):
                once.create_once(tmp_path / "data", build_slowly, timeout_s=LIMIT_S)
        finally:
            stop.forget_stop_request()


@pytest.mark.parametrize("damage", ["remove", "shorten", "marker"])
def test_what_has_lost_a_file_is_made_again(tmp_path: Path, damage: str) -> None:
    (tmp_path / "go").touch()
    target = once.create_once(tmp_path / "data", build_slowly, timeout_s=1)
    match damage:
        case "remove":
            (target / "second").unlink()
        case "shorten":
            os.truncate(target / "second", 1)
        case _:
            once.marker_of(target).unlink()

    once.create_once(target, build_slowly, timeout_s=1)

    assert (target / "second").read_text() == "whole"
    assert len((tmp_path / "built-by").read_text().split()) == 2


def test_a_single_file_can_be_made_once_in_the_cache(tmp_path: Path) -> None:
    directory, calls = manager(tmp_path), []

    def build(path: Path) -> None:
        calls.append(path)
        path.write_text("vocabulary")

    for _ in range(2):
        assert directory.create_once("vocabulary.txt", build).read_text() == "vocabulary"
    assert len(calls) == 1
    assert directory.cache_dir == tmp_path / "cache"


def test_a_failed_builder_leaves_nothing_and_the_next_one_tries(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise ValueError("no such column")

    with pytest.raises(ValueError, match="no such column"):
        once.create_once(tmp_path / "data", fail, timeout_s=1)
    assert list(tmp_path.iterdir()) == [tmp_path / once.LOCKS]

    once.create_once(tmp_path / "data", lambda path: path.touch(), timeout_s=1)
    assert (tmp_path / "data").exists()
    assert caplog.records == []


def test_a_builder_that_makes_nothing_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="made nothing at"):
        once.create_once(tmp_path / "data", lambda path: None, timeout_s=1)


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
