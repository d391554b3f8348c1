"""Small managers for tests, and child functions that use them."""

import posixpath
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, ClassVar, Literal

from project.common import managers
from project.common.errors import ProjectError
from project.common.managers.base import BaseManager, BaseProcessManager, ThreadLocal
from project.common.managers.process_init import ensure_process_initialized
from project.common.processes.identity import Identity, Role, current_identity, set_identity
from project.common.processes.stop import StopRequest, StopRequested
from project.common.whitelist import allow_targets

ALLOWED = "tests.helpers.*"
EVERYWHERE = frozenset({Role.MAIN, Role.TRIAL, Role.RANK, Role.WORKER})

events: list[str] = []
release = threading.Event()
is_building = threading.Event()


class _Noting(BaseManager):
    """Writes down when it is built and closed."""

    def __init__(self) -> None:
        events.append(f"build {self.name}")

    def close(self) -> None:
        events.append(f"close {self.name}")


class Ground(BaseProcessManager, _Noting):
    name: ClassVar[str] = "ground"
    roles = EVERYWHERE

    def __init__(self, *, depth: int = 1) -> None:
        super().__init__()
        self.depth = depth
        self.local = ThreadLocal(holes=0)


class House(_Noting):
    name: ClassVar[str] = "house"
    roles = frozenset({Role.RANK, Role.WORKER})

    def __init__(
        self,
        *,
        ground: Ground,
        colour: Literal["white", "red"] = "white",
        rooms: list[str] | None = None,
        garden: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.ground = ground
        self.colour = colour
        self.rooms = rooms
        self.garden = garden


class Roof(_Noting):
    name: ClassVar[str] = "roof"
    roles = frozenset({Role.RANK})

    def __init__(self, *, house: House, ground: Ground) -> None:
        super().__init__()
        self.house = house
        self.ground = ground


class Lamp(_Noting):
    """Wishes for a roof, and does without."""

    name: ClassVar[str] = "lamp"
    roles = frozenset({Role.RANK, Role.WORKER})

    def __init__(self, *, roof: Roof | None = None) -> None:
        super().__init__()
        self.roof = roof


class Slow(_Noting):
    """Takes a moment to build, so that a second thread comes meanwhile."""

    name: ClassVar[str] = "slow"
    roles = EVERYWHERE

    def __init__(self, *, ground: Ground) -> None:
        super().__init__()
        is_building.set()
        time.sleep(0.1)
        self.ground = ground


class Broken(_Noting):
    """Fails when it is built."""

    name: ClassVar[str] = "broken"
    roles = EVERYWHERE

    def __init__(self, *, ground: Ground) -> None:
        raise OSError("no space left")


class Stubborn(_Noting):
    """Fails in closing."""

    name: ClassVar[str] = "stubborn"
    roles = EVERYWHERE

    def __init__(self, *, ground: Ground) -> None:
        super().__init__()

    def close(self) -> None:
        super().close()
        raise OSError("still in use")


class Hanging(_Noting):
    """Does not come back from closing before `release` is set."""

    name: ClassVar[str] = "hanging"
    roles = EVERYWHERE

    def __init__(self, *, ground: Ground) -> None:
        super().__init__()

    def close(self) -> None:
        super().close()
        release.wait(30)


class Interrupted(_Noting):
    """Somebody asks the process to stop while this one closes."""

    name: ClassVar[str] = "interrupted"
    roles = EVERYWHERE

    def __init__(self, *, ground: Ground) -> None:
        super().__init__()

    def close(self) -> None:
        super().close()
        raise StopRequested(StopRequest(reason="SIGTERM", exit_code=143, deadline=time.monotonic() + 10))


class Hen(BaseManager):
    name: ClassVar[str] = "hen"
    roles = EVERYWHERE

    def __init__(self, *, egg: "Egg") -> None:
        self.egg = egg


class Egg(BaseManager):
    name: ClassVar[str] = "egg"
    roles = EVERYWHERE

    def __init__(self, *, hen: Hen) -> None:
        self.hen = hen


class Tensors(BaseManager):
    """Serves `clear_memory`."""

    name: ClassVar[str] = "tensor"
    roles = EVERYWHERE

    def clear_memory(self) -> None:
        events.append("clear tensor")


def make_foreign() -> Callable[[str], str]:
    """Returns a callable of another module."""
    return posixpath.basename


def config_of(*names: str, **settings: dict[str, Any]) -> dict[str, Any]:
    """Returns a configuration of some of these managers; `settings` are arguments by name."""
    return {"managers": {name: node(name, **settings.get(name, {})) for name in names}}


def node(name: str, **arguments: Any) -> dict[str, Any]:
    """Returns the configuration node of one of these managers."""
    cls = "Tensors" if name == "tensor" else name.capitalize()
    return {"_target_": f"{__name__}.{cls}", **arguments}


def answer(connection: Connection, ask: Callable[[], Any]) -> None:
    """Child: sends what `ask` returns, or the error that it raises, as text."""
    allow_targets(ALLOWED)
    try:
        connection.send(ask())
    except ProjectError as error:
        connection.send(f"{type(error).__name__}: {error}")


def use_as_worker(connection: Connection, config: dict[str, Any]) -> None:
    """Child of a user: the documented first call, twice, then a manager."""

    def ask() -> Any:
        ensure_process_initialized(config)
        ensure_process_initialized(config)
        identity = current_identity()
        return identity and str(identity.role), managers.get_manager("house").ground.depth

    answer(connection, ask)
    managers.cleanup_managers()


def use_too_early(connection: Connection) -> None:
    """Child of a user that forgot the first call."""
    answer(connection, lambda: managers.get_manager("house"))


def use_as_rank(connection: Connection, config: dict[str, Any]) -> None:
    """Child of a user that says itself what it is."""

    def ask() -> Any:
        ensure_process_initialized(config, role="rank")
        return str(managers.get_manager("roof").house.ground.identity.role)

    answer(connection, ask)
    managers.cleanup_managers()


def use_handed_identity(connection: Connection, config: dict[str, Any]) -> None:
    """Child whose entry said who it is, as ours do."""

    def ask() -> Any:
        set_identity(Identity(role=Role.WORKER, rank=1, world_size=2, worker=3, n_workers=4))
        ensure_process_initialized(config)
        return managers.get_manager("ground").identity.label

    answer(connection, ask)
    managers.cleanup_managers()
