"""What all managers share: roles, health, thread-local state, and that none of them leaves its process."""

import os
import threading
import weakref
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self, SupportsIndex

from project.common.containers import building_identity
from project.common.errors import ProcessBoundaryError
from project.common.processes.identity import Identity, Role, current_identity

_REMEDY = "hand over the configuration, and call ensure_process_initialized(config) there first"


@dataclass(frozen=True)
class Health:
    """Answer of `check()`.

    Args:
        ok: Whether the manager can do its work now.
        reason: Why not, or what was found; one line.
    """

    ok: bool
    reason: str


class ThreadLocal(threading.local):
    """State that each thread has for itself, with first values: `self.local = ThreadLocal(depth=0)`."""

    def __init__(self, **first: Any) -> None:
        self.__dict__.update(first)


class BaseManager:
    """Serves one process. Subclasses have a keyword-only constructor, in which a parameter named like another
    configured manager is a need: the container gives it. Import torch and its like inside methods only: main reads the
    signature.

    `close()` may run in another thread than the one that built the manager, and after a failed or half-done start.
    """

    name: ClassVar[str]
    roles: ClassVar[frozenset[Role]]

    close_timeout_s: float | None = None
    """How long `close()` may take; None means `processes.close_timeout_s`. An instance may set its own."""

    _identity: Identity
    _pid: int

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        manager = super().__new__(cls)
        manager._identity = building_identity() or current_identity() or Identity(role=Role.RANK, rank=0)
        manager._pid = os.getpid()
        _alive.add(manager)
        return manager

    def close(self) -> None:
        """Gives back what the manager holds; may be called again."""

    def check(self) -> Health:
        """Cheap: whether the manager can do its work now."""
        return Health(ok=True, reason="nothing to check")

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise ProcessBoundaryError(
            f"managers.{_name(self)}: the manager of {self._identity.label} (pid {self._pid}) was to be pickled or "
            f"copied in pid {os.getpid()}, for another process or a second owner; it stays in its process: {_REMEDY}"
        )


class BaseProcessManager(BaseManager):
    """A manager whose work depends on which process it is in."""

    @property
    def identity(self) -> Identity:
        """Who this process is."""
        return current_identity() or self._identity

    @property
    def pid(self) -> int:
        """The process that built this manager."""
        return self._pid


_alive: "weakref.WeakSet[BaseManager]" = weakref.WeakSet()


def _name(manager: BaseManager) -> str:
    cls = type(manager)
    return getattr(cls, "name", cls.__name__)


class _Inherited:
    """Mixed in front of the class of every manager that a fork copied, so that a normal call costs no check."""

    def __getattribute__(self, attribute: str) -> Any:
        if attribute in {"__class__", "__reduce_ex__"}:
            return object.__getattribute__(self, attribute)
        raise ProcessBoundaryError(_describe_inherited(self))

    def __setattr__(self, attribute: str, value: Any) -> None:
        raise ProcessBoundaryError(_describe_inherited(self))

    def __repr__(self) -> str:
        return f"<{_describe_inherited(self)}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise ProcessBoundaryError(_describe_inherited(self))


def _describe_inherited(manager: Any) -> str:
    state = object.__getattribute__(manager, "__dict__")
    return (
        f"managers.{_name(manager)}: the manager belongs to {state['_identity'].label} (pid {state['_pid']}) and was "
        f"used in pid {os.getpid()}, a fork of it; {_REMEDY}"
    )


def _poison_inherited() -> None:
    """Runs in a forked child: what it inherited is another process's."""
    for manager in list(_alive):
        cls = type(manager)
        manager.__class__ = type(cls.__name__, (_Inherited, cls), {"__module__": cls.__module__})
    _alive.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_poison_inherited)
