"""The container of this process, and who may use it: what the public functions in `managers/` share."""

import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from project.common.containers import Container
from project.common.devices.inventory import has_device_file_open
from project.common.errors import ConfigError, NotInitializedError, ProcessBoundaryError
from project.common.manager_graph import parse_roles
from project.common.plain_config import as_plain, differences
from project.common.processes import handover
from project.common.processes.identity import Identity, Role, current_identity, set_identity

logger = logging.getLogger(__name__)

_MOST_SHOWN = 5

_lock = threading.RLock()
_container: Container | None = None
_replaced: tuple[Identity | None] | None = None  # what the identity was before we set it
_shares_identity = False  # children of this process are told of it, by us
_identity_at_fork: Identity | None = None


def open_container(config: Mapping[str, Any], *, identity: Identity, must_be: Role | None) -> None:
    """Makes the container of this process, unless there is one of the same configuration.

    Args:
        config: The whole configuration or a part of it.
        identity: For whom, if a container must be made.
        must_be: The role that the caller insists on; None takes what there is.
    """
    global _container
    with _lock:
        config = as_plain(config)
        if _container is not None and _container.pid == os.getpid():
            _require_same(_container, config, must_be)
            return
        if _container is not None:
            _refuse_after_cuda(_container)
        _container = Container(config, identity=identity)
        if current_identity() != identity:
            _become(identity)


def current_container(name: str) -> Container:
    """The container of this process; `name` is the manager that an error talks about."""
    if _container is None:
        raise NotInitializedError(_describe_missing(name))
    return _container


def close_container() -> list[str]:
    """Closes and forgets the container of this process; does nothing without one. Returns what could not be closed."""
    global _container
    with _lock:
        container, _container = _container, None
        if _replaced is not None:
            _unbecome(*_replaced)
    if container is None or container.pid != os.getpid():
        return []
    return container.close()


def built_manager(name: str) -> Any | None:
    """A manager of this process if it exists already; builds nothing."""
    container = _container
    if container is None or container.pid != os.getpid() or name not in container.built():
        return None
    return container.get(name)


def parse_role(role: Role | str | None) -> Role | None:
    """Returns the role of this name; None stays None."""
    if role is None:
        return None
    (parsed,) = parse_roles([role], key="role")
    return parsed


def identity_is_inherited() -> bool:
    """Whether this process has its identity only because a fork copied the memory of its owner."""
    return _identity_at_fork is not None and current_identity() is _identity_at_fork


def _become(identity: Identity) -> None:
    global _replaced, _shares_identity
    _replaced = (current_identity(),)
    set_identity(identity)
    if handover.inherited_identity() is None:
        handover.share_identity(identity)
        _shares_identity = True


def _unbecome(before: Identity | None) -> None:
    """A notebook's process is nobody again, and may become main."""
    global _replaced, _shares_identity
    _replaced = None
    set_identity(before)
    if _shares_identity:
        handover.share_identity(None)
        _shares_identity = False


def _require_same(container: Container, config: Mapping[str, Any], must_be: Role | None) -> None:
    who = f"{container.identity.label} (pid {container.pid})"
    if must_be is not None and container.identity.role != must_be:
        raise ConfigError(
            f"role: {must_be!s} was asked for, but {who} has managers as {container.identity.role}; "
            "call cleanup_managers() first"
        )
    if container.config != config:
        found = list(differences(config, container.config))
        more = [f"… and {len(found) - _MOST_SHOWN} more"] if len(found) > _MOST_SHOWN else []
        raise ConfigError(
            f"config: {who} has managers from another configuration; call cleanup_managers() first",
            *found[:_MOST_SHOWN],
            *more,
        )


def _refuse_after_cuda(container: Container) -> None:
    torch = sys.modules.get("torch")
    # Builds of torch for CUDA answer yes after a mere question, too, on machines without any device.
    if torch is not None and torch.cuda._is_in_bad_fork() and has_device_file_open():
        raise ProcessBoundaryError(
            f"pid {os.getpid()}: is a fork of {container.identity.label} (pid {container.pid}), which had started "
            "CUDA, so CUDA cannot work here; start the process with the method spawn or forkserver"
        )


def _describe_missing(name: str) -> str:
    import multiprocessing

    identity = current_identity()
    label = identity.label if identity is not None else multiprocessing.current_process().name
    is_child = multiprocessing.parent_process() is not None or (identity is not None and identity.role == Role.WORKER)
    call = (
        "ensure_process_initialized(config) is missing here, as the first thing in this child process"
        if is_child
        else "initialize_factory(config) is missing here"
    )
    return f"managers.{name}: asked for in {label} (pid {os.getpid()}), which has no managers yet; {call}"


def _note_fork() -> None:
    global _lock, _identity_at_fork
    _lock = threading.RLock()  # the thread that held it is not in this process
    _identity_at_fork = current_identity()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
