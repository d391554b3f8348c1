"""The container: one process's managers, built when first asked for and closed before what they need."""

import copy
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

from project.common.errors import ConfigError, NotInitializedError, ProcessBoundaryError
from project.common.identity import Identity
from project.common.manager_graph import ManagerGraph, ManagerNode
from project.common.plain_config import as_plain
from project.common.signatures import HYDRA_KEYS, suggest
from project.common.stop import StopRequested, stop_request
from project.common.whitelist import instantiate, refuse_harmful

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
_LEAST_TIMEOUT_S = 0.5

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
        self._closer = _Closer()
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
                self._closer.report("another thread is still building a manager, which stays open")
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


class _Closer:
    """Closes managers one by one, each within a time limit, and remembers what went wrong."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._interrupt: BaseException | None = None

    def close(self, name: str, close: Callable[[], None], timeout_s: float) -> None:
        """Calls `close` in a thread of its own, so that one that hangs can be left behind."""
        outcome: list[BaseException] = []
        thread = threading.Thread(target=_run, args=(close, outcome), name=f"close-{name}", daemon=True)
        thread.start()
        self._wait(thread, _limit(timeout_s))
        if thread.is_alive():
            self.report(f"managers.{name}: closing hangs and was given up; it is at\n{_stack_of(thread)}")
        elif outcome and isinstance(outcome[0], Exception):
            self.report(f"managers.{name}: closing failed: {outcome[0]!r}", error=outcome[0])
        elif outcome:
            self._interrupt = self._interrupt or outcome[0]

    def report(self, problem: str, *, error: BaseException | None = None) -> None:
        """Logs a problem and keeps it for the end."""
        self._problems.append(problem)
        logger.error(problem, exc_info=error)

    def finish(self) -> list[str]:
        """Returns the problems, or raises the interrupt that came meanwhile; starts afresh."""
        problems, interrupt = self._problems, self._interrupt
        self._problems, self._interrupt = [], None
        if interrupt is not None:
            raise interrupt
        return problems

    def _wait(self, thread: threading.Thread, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            try:
                thread.join(left)
            except (KeyboardInterrupt, StopRequested) as interrupt:  # raised by a signal handler in this thread
                self._interrupt = self._interrupt or interrupt


def _run(close: Callable[[], None], outcome: list[BaseException]) -> None:
    try:
        close()
    except BaseException as error:  # noqa: BLE001 - handed to the thread that waits, which reports or raises it
        outcome.append(error)


def _limit(timeout_s: float) -> float:
    """A stop's deadline shortens the time that one manager may take, but leaves each a moment."""
    request = stop_request()
    return timeout_s if request is None else max(_LEAST_TIMEOUT_S, min(timeout_s, request.seconds_left()))


def _stack_of(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else "(it ended just now)"
