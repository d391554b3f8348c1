"""The container: one process's managers, built when first asked for and closed before what they need."""

import copy
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

from project.common.closing import Closer
from project.common.errors import ConfigError, NotInitializedError, ProcessBoundaryError
from project.common.manager_graph import ManagerGraph, ManagerNode
from project.common.plain_config import as_plain
from project.common.processes.identity import Identity
from project.common.signatures import HYDRA_KEYS, suggest
from project.common.whitelist import instantiate, refuse_harmful

CLOSE_TIMEOUT_S = 5.0

_building: ContextVar[Identity | None] = ContextVar("identity_of_the_container_that_builds", default=None)


def building_identity() -> Identity | None:
    """For whom a manager is being built just now; None outside the container."""
    return _building.get()


class Container:
    """Holds the managers of one process. All threads share them; no other process may use them.

    Args:
        config: The whole configuration, or the part that the managers need; a DictConfig will do.
        identity: For whom the managers are built; decides which there are.

    Raises:
        ConfigError: The managers cannot be built, with every reason.
    """

    def __init__(self, config: Mapping[str, Any], *, identity: Identity) -> None:
        self.config = as_plain(config)
        self.identity = identity
        self.pid = os.getpid()
        refuse_harmful(self.config)
        self.graph = ManagerGraph.read(self.config)
        if self.graph.problems:
            raise ConfigError(*self.graph.problems)
        self._available = self.graph.for_role(identity.role)
        self._timeout_s = float((self.config.get("processes") or {}).get("close_timeout_s") or CLOSE_TIMEOUT_S)
        self._instances: dict[str, Any] = {}
        self._stack = ExitStack()
        self._closer = Closer()
        self._lock = threading.RLock()
        self._is_closed = False

    def get(self, name: str) -> Any:
        """Returns this process's manager; builds it, and first what it needs, if nobody asked before."""
        if self.pid != os.getpid():
            raise ProcessBoundaryError(self._describe_foreign(name))
        manager = self._instances.get(name)
        if manager is not None:
            return manager
        node = self._find(name)
        with self._lock:
            return self._build(node)

    def build_all(self) -> None:
        """Builds every manager of this process's role, in the order of their needs."""
        for name in self._available:
            self.get(name)

    def built(self) -> tuple[str, ...]:
        """Names of the managers that exist, in the order in which they were built."""
        return tuple(self._instances)

    def close(self) -> list[str]:
        """Closes what was built, dependents first. May be called again, from any thread.

        Returns:
            What could not be closed in order, one line each; it is logged too.

        Raises:
            KeyboardInterrupt | StopRequested: Somebody interrupted the closing; all managers were closed nevertheless.
        """
        if self.pid != os.getpid():
            raise ProcessBoundaryError(self._describe_foreign("container"))
        is_ours = self._lock.acquire(timeout=self._timeout_s)
        try:
            if not is_ours:
                self._closer.report(
                    "another thread is still building a manager, which is closed as soon as it is there"
                )
            self._is_closed = True
            self._instances.clear()
            self._stack.close()  # never raises: each entry passes through the closer
        finally:
            if is_ours:
                self._lock.release()
        return self._closer.finish()

    def _find(self, name: str) -> ManagerNode:
        if self._is_closed:
            raise NotInitializedError(
                f"managers.{name}: the managers of {self.identity.label} (pid {self.pid}) were closed by "
                "cleanup_managers(); call initialize_factory(config) again"
            )
        node = self._available.get(name)
        if node is not None:
            return node
        if name in self.graph.nodes:
            roles = ", ".join(sorted(self.graph.nodes[name].roles))
            raise ProcessBoundaryError(
                f"managers.{name}: is not for the role {self.identity.role} of {self.identity.label} (pid {self.pid}); "
                f"it is for {roles}; ask for it there, or change processes.roles.{name}"
            )
        raise ConfigError(f"managers.{name}: is not configured; {suggest(name, self.graph.nodes)}")

    def _build(self, node: ManagerNode) -> Any:
        if node.name in self._instances:
            return self._instances[node.name]
        self._find(node.name)  # closed while this thread waited for the lock
        needs = {name: self._build(self._available[name]) for name in node.needs}
        # A wish that this role has not is left to its default.
        needs |= {name: self._build(self._available[name]) for name in node.wishes if name in self._available}
        with _built_for(self.identity), self._named_errors(node.name):
            manager = _make_factory(self.config["managers"][node.name])(**needs)
        if self._is_closed:  # somebody could not wait for us any longer
            self._close(node.name, manager)
            self._find(node.name)
        self._stack.callback(self._close, node.name, manager)
        self._instances[node.name] = manager
        return manager

    def _close(self, name: str, manager: Any) -> None:
        timeout_s = getattr(manager, "close_timeout_s", None) or self._timeout_s
        self._closer.close(name, manager.close, timeout_s)

    @contextmanager
    def _named_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            error.add_note(f"managers.{name}: while it was built in {self.identity.label} (pid {self.pid})")
            raise

    def _describe_foreign(self, name: str) -> str:
        return (
            f"managers.{name}: the managers belong to {self.identity.label} (pid {self.pid}) and were asked for in pid "
            f"{os.getpid()}, a fork of it; call ensure_process_initialized(config) there first"
        )


def _make_factory(settings: Mapping[str, Any]) -> Callable[..., Any]:
    """Returns the manager's class with its arguments, for which only the managers that it needs are missing."""
    # Partial: a manager handed to Hydra would arrive as a DictConfig.
    if settings.get("_recursive_", False):
        return cast(Callable[..., Any], instantiate({**settings, "_partial_": True}))
    # Nodes below are recipes, which the manager follows when it has what they need (a vocabulary size, say). Only the
    # target goes through Hydra, whose containers would cost more than all the rest.
    make = instantiate({"_target_": settings["_target_"], "_partial_": True})
    arguments = {name: value for name, value in settings.items() if name not in HYDRA_KEYS}
    return partial(make, *copy.deepcopy(settings.get("_args_", ())), **copy.deepcopy(arguments))


@contextmanager
def _built_for(identity: Identity) -> Iterator[None]:
    token = _building.set(identity)
    try:
        yield
    finally:
        _building.reset(token)
