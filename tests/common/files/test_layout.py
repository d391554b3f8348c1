"""Every file name of a run folder is said once."""

from pathlib import Path

from project.common.files.layout import RunLayout


def test_every_file_name_lies_in_the_folder() -> None:
    layout = RunLayout(Path("/run"))
    names = [name for name, value in vars(RunLayout).items() if isinstance(value, property)]

    assert len(names) == 20
    assert len({getattr(layout, name) for name in names}) == len(names)
    assert all(Path("/run") in getattr(layout, name).parents for name in names)


def test_makes_the_folders_and_may_be_called_again(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path / "a" / "b")
    layout.make()
    layout.make()

    assert sorted(path.name for path in layout.run_dir.iterdir()) == ["checkpoints", "logs", "processes"]


def test_logs_and_records_carry_label_and_pid() -> None:
    layout = RunLayout(Path("/run"))

    assert layout.process_log("rank0", 7) == Path("/run/logs/rank0-7.log")
    assert layout.process_record("rank0", 7) == Path("/run/processes/rank0-7.json")
    assert layout.checkpoint("best") == Path("/run/checkpoints/best.ckpt")
