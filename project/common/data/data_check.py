"""What can be said about data before a run begins: whether its files are there, can be read, and have the columns."""

from collections.abc import Mapping
from typing import Any

from project.common.data import data_schema, data_sources
from project.common.errors import DataError


def check_files(settings: Mapping[str, Any]) -> list[str]:
    """Returns what is wrong with the files of a data manager's settings, as far as their first rows show it."""
    if not settings.get("files"):
        return []
    try:
        columns = data_schema.Columns(**(settings.get("columns") or {}))
        records = data_sources.peek(settings["files"], encoding=settings.get("encoding", "utf-8"))
        data_schema.as_rows(records, columns=columns, on_empty="drop")
    except DataError as error:
        return str(error).splitlines()
    return []
