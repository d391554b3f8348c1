"""The order in which a tree's processes are shown."""

from collections.abc import Iterable
from typing import Any

from project.common.process_registry import ProcessRecord
from project.common.processes.identity import Role


def in_tree_order(records: Iterable[ProcessRecord]) -> list[ProcessRecord]:
    """By attempt and trial, then each rank with its workers below it."""
    order = list(Role)

    def place(record: ProcessRecord) -> tuple[Any, ...]:
        identity = record.identity
        rank = -1 if identity.rank is None else identity.rank
        return identity.attempt, identity.trial, rank, order.index(identity.role), identity.worker or 0, record.started

    return sorted(records, key=place)


def indentation(record: ProcessRecord) -> int:
    """How deep a process lies below main."""
    return {Role.MAIN: 0, Role.SERVER: 1, Role.TRIAL: 1, Role.RANK: 2, Role.WORKER: 3}[record.identity.role]
