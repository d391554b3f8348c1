"""The timeline is a trace that Perfetto opens: a row per process, a bar per state."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from project.common.process_registry import ProcessRecord
from project.common.processes.identity import Identity, ProcessKey, Role
from project.common.processes.timeline import trace_events, write_timeline
from project.common.processes.timeline_svg import timeline_svg

SVG = "{http://www.w3.org/2000/svg}"
DONE = {"status": "completed", "exit_code": 0}


def record(pid: int, history: list[tuple[str, float]], **more: object) -> ProcessRecord:
    key = ProcessKey(host="h", boot_id="b", pid_namespace="n", pid=pid, start_time="1")
    identity = Identity(role=Role.RANK, rank=0)
    return ProcessRecord(key=key, identity=identity, parent_pid=1, started=history[0][1], history=history, **more)  # type: ignore[arg-type]


def bars(records: list[ProcessRecord]) -> list[tuple[str, int, int]]:
    return [(event["name"], event["ts"], event["dur"]) for event in trace_events(records) if event["ph"] == "X"]


def test_a_state_is_a_bar_to_the_next_one() -> None:
    history = [("starting", 100.0), ("training", 100.5), ("ended", 102.0)]

    assert bars([record(7, history, outcome=DONE)]) == [("starting", 0, 500_000), ("training", 500_000, 1_500_000)]


def test_the_last_state_of_a_killed_process_lasts_to_its_last_sign_of_life() -> None:
    history = [("starting", 100.0), ("training", 101.0)]

    killed = record(7, history, heartbeat={"step": 3, "time": 104.0})

    assert bars([killed])[-1] == ("training", 1_000_000, 3_000_000)


def test_times_count_from_the_first_process() -> None:
    first, second = record(1, [("starting", 50.0), ("ended", 51.0)]), record(2, [("starting", 52.0), ("ended", 53.0)])

    assert [begin for _, begin, _ in bars([second, first])] == [2_000_000, 0]


def test_every_event_has_what_the_format_asks_for(tmp_path: Path) -> None:
    folder = tmp_path / "processes"
    folder.mkdir()
    (folder / "rank0-7.json").write_text(
        json.dumps(record(7, [("starting", 1.0), ("ended", 2.0)], outcome=DONE).as_dict())
    )
    write_timeline(tmp_path)

    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    assert [event["ph"] for event in events] == ["M", "X"]
    assert events[0]["args"] == {"name": "rank0"}
    for event in events:
        assert {"name", "ph", "pid", "tid"} <= event.keys()
        assert event["ph"] == "M" or (event["ts"] >= 0 and event["dur"] >= 0)


def test_a_run_without_records_has_an_empty_timeline() -> None:
    assert trace_events([]) == []


def drawn(records: list[ProcessRecord]) -> tuple[list[str], list[tuple[str, float, float]]]:
    """Every text of the picture, and each bar as (what it says, left, width)."""
    root = ElementTree.fromstring(timeline_svg(records, title="a <run>"))
    rects = [rect for rect in root.iter(SVG + "rect") if rect.find(SVG + "title") is not None]
    bars_drawn = [
        (rect.findtext(SVG + "title", ""), float(rect.attrib["x"]), float(rect.attrib["width"])) for rect in rects
    ]
    return [text.text or "" for text in root.iter(SVG + "text")], bars_drawn


def test_the_picture_has_a_row_per_process_and_says_who_ended_badly() -> None:
    good = record(7, [("starting", 100.0), ("training", 101.0), ("ended", 104.0)], outcome=DONE)
    bad = record(8, [("starting", 100.0), ("ended", 102.0)], outcome={"status": "crashed", "exit_code": 1})

    texts, found = drawn([good, bad])

    assert texts[0] == "a <run>"
    assert {"rank0 (7)", "rank0 (8)", "✕ crashed (1)", "training", "4 s"} <= set(texts)
    (_, left, width), (_, next_left, next_width), (_, bad_left, bad_width) = found
    assert (left, round(next_left - left, 1)) == (bad_left, width)
    assert next_width == pytest.approx(3 * width, rel=0.01)
    assert bad_width == pytest.approx(2 * width, rel=0.01)


def test_the_hours_between_two_attempts_are_not_drawn() -> None:
    first = record(7, [("training", 100.0), ("ended", 101.0)], outcome=DONE)
    second = record(8, [("training", 90_000.0), ("ended", 90_001.0)], outcome=DONE)

    _, ((_, left, width), (_, next_left, next_width)) = drawn([first, second])

    assert width == next_width
    assert left + width < next_left < left + 1.1 * width


def test_a_run_without_records_is_an_empty_picture() -> None:
    assert drawn([]) == (["a <run>"], [])
