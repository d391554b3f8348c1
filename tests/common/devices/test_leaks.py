"""What grew, and where it was made."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from project.common.devices.leaks import LeakTracker


@pytest.fixture(autouse=True)
def small_heap() -> Iterator[None]:
    """Keeps the garbage collector from walking through all that other tests have imported."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def tracker() -> Iterator[LeakTracker]:
    tracker = LeakTracker()
    yield tracker
    tracker.stop()


class Node:
    def __init__(self) -> None:
        self.me = self
        self.weight: torch.Tensor | None = None


def test_says_nothing_when_nothing_grew(tracker: LeakTracker) -> None:
    tracker.mark()
    torch.zeros(10).sum()

    assert not tracker.report()
    assert str(tracker.report()) == "nothing grew"


def test_counts_tensors_that_stayed_and_who_holds_them(tracker: LeakTracker) -> None:
    old = torch.zeros(5)
    tracker.mark()
    kept = [torch.zeros(256, 1024) for _ in range(3)]

    (growth,) = tracker.report().growths

    assert (growth.kind, growth.what, growth.count, growth.mb) == ("tensors", "float32 [256, 1024] on cpu", 3, 3.0)
    assert growth.where == "held by a list of 3"
    assert len(kept) == 3
    assert old.numel() == 5


def test_views_of_one_storage_count_their_memory_once(tracker: LeakTracker) -> None:
    tracker.mark()
    whole = torch.zeros(4, 2**18)
    rows = list(whole)

    assert sum(growth.mb for growth in tracker.report().growths) == 8.0, (
        "4 MB seen as a whole, and once more by its rows"
    )
    assert len(rows) == 4


def test_traces_tell_where_a_tensor_was_made() -> None:
    tracker = LeakTracker(n_frames=8)
    tracker.mark()
    kept = torch.zeros(3) + 1
    report = tracker.report()
    tracker.stop()

    assert f"made at {__file__}:" in str(report)
    assert kept.numel() == 3


def test_finds_tensors_that_only_a_reference_cycle_keeps(tracker: LeakTracker) -> None:
    gc.disable()
    try:
        tracker.mark()
        node = Node()
        node.weight = torch.zeros(2**18)
        del node
        report = tracker.report()
    finally:
        gc.enable()

    assert str(report) == "cycles: 1 x float32 [262144] on cpu, 1.0 MB, held by a cycle"
    assert not tracker.report(), "reporting frees them"
    assert gc.garbage == []


def test_names_the_kinds_of_many_cyclic_objects(tracker: LeakTracker) -> None:
    gc.disable()
    try:
        tracker.mark()
        for _ in range(200):
            Node()
        report = tracker.report()
    finally:
        gc.enable()

    assert "cycles: 200 x Node" in str(report)


def test_counts_files_that_were_left_open(tracker: LeakTracker, tmp_path: Path) -> None:
    tracker.mark()
    with (tmp_path / "left").open("w"):
        report = tracker.report()

    assert [(growth.kind, growth.what) for growth in report.growths] == [("open files", str(tmp_path / "left"))]
    assert not tracker.report()


def test_counts_shared_memory_that_is_mapped(tracker: LeakTracker) -> None:
    tracker.mark()
    shared = torch.zeros(2**18).share_memory_()
    report = tracker.report()

    (segment,) = [growth for growth in report.growths if growth.kind == "shared memory"]
    assert segment.mb == pytest.approx(1.0, abs=0.1)
    del shared
    assert not tracker.report()
