"""Small managers for tests, and child functions that use them."""

from typing import ClassVar

from project.common.identity import Role
from project.common.managers.base import BaseManager, BaseProcessManager

EVERYWHERE = frozenset({Role.MAIN, Role.TRIAL, Role.RANK, Role.WORKER})

events: list[str] = []


class Ground(BaseProcessManager):
    name: ClassVar[str] = "ground"
    roles = EVERYWHERE

    def __init__(self, *, depth: int = 1) -> None:
        events.append("build ground")
        self.depth = depth

    def close(self) -> None:
        events.append("close ground")


class House(BaseManager):
    name: ClassVar[str] = "house"
    roles = frozenset({Role.RANK, Role.WORKER})

    def __init__(self, *, ground: Ground, colour: str = "white") -> None:
        events.append("build house")
        self.ground = ground
        self.colour = colour

    def close(self) -> None:
        events.append("close house")


class Roof(BaseManager):
    name: ClassVar[str] = "roof"
    roles = frozenset({Role.RANK})

    def __init__(self, *, house: House, ground: Ground) -> None:
        events.append("build roof")
        self.house = house
        self.ground = ground

    def close(self) -> None:
        events.append("close roof")


class Lamp(BaseManager):
    """Wishes for a roof, and does without."""

    name: ClassVar[str] = "lamp"
    roles = frozenset({Role.RANK, Role.WORKER})

    def __init__(self, *, roof: Roof | None = None) -> None:
        events.append("build lamp")
        self.roof = roof

    def close(self) -> None:
        events.append("close lamp")
