"""Problems name the key that people type."""

from typing import Any

from project.common.config_origin import as_typed, references


def test_references_are_read_from_the_managers_files() -> None:
    assert ("managers.batch.batch_size", "loader.batch_size") in references()
    assert ("managers.data.files", "task.data.files") in references()


def test_what_a_manager_follows_is_named_in_its_place_and_once() -> None:
    config: dict[str, Any] = {
        "managers": {"data": {"columns": {"text": 1}, "pack": 3}},
        "task": {"data": {"columns": {"text": 1}, "pack": False}},
    }

    assert as_typed(
        ["managers.data.columns.text: no", "task.data.columns.text: no", "managers.data.pack: no", "seed: no"], config
    ) == ["task.data.columns.text: no", "managers.data.pack: no", "seed: no"]
