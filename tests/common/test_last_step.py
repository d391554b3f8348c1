"""The last step of a process stands on disk as soon as it is made."""

from pathlib import Path

from project.common import last_step
from project.common.last_step import LastStep


def test_the_last_of_many_steps_is_read(tmp_path: Path) -> None:
    path = last_step.path_beside(tmp_path / "rank0-1.json")
    writer = LastStep(path)
    for step in range(100):
        writer.write(step, step / 2)
    writer.close()

    assert last_step.read(path) == {"step": 99, "time": 49.5}
    assert path.name == "rank0-1.step"


def test_where_no_step_was_made_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "cut.step").write_bytes(b"12")

    assert last_step.read(tmp_path / "gone.step") is None
    assert last_step.read(tmp_path / "cut.step") is None


def test_a_forgotten_writer_may_be_closed_again(tmp_path: Path) -> None:
    writer = LastStep(tmp_path / "x.step")
    writer.close()
    writer.close()
