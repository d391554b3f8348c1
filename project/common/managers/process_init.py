"""The first call in any child process, however it was started."""

from collections.abc import Mapping
from typing import Any

from project.common import process_state
from project.common.errors import NotInitializedError
from project.common.processes.identity import Identity, Role, current_identity


def ensure_process_initialized(config: Mapping[str, Any] | None = None, *, role: Role | str | None = None) -> None:
    """Gives this process its managers unless it has them; may be called again, and from any thread.

    Args:
        config: A dict or a DictConfig; None takes what the parent handed over.
        role: None takes the identity that was handed over, or else becomes a worker.

    Raises:
        ConfigError: The configuration cannot work, or is another than the one that this process has managers from.
        NotInitializedError: There is no configuration.
        ProcessBoundaryError: This process is a fork of one that had started CUDA.
    """
    role = process_state.parse_role(role)
    if config is None:
        config = _handed_config()
    process_state.open_container(config, identity=_find_identity(role), must_be=role)


def _find_identity(role: Role | None) -> Identity:
    own = None if process_state.identity_is_inherited() else current_identity()
    if own is not None:
        return own if role is None else own.child(role=role)
    parent = current_identity() or _inherited_identity()
    if parent is None:
        return Identity(role=role or Role.WORKER)
    return parent.child(role=role or Role.WORKER)


def _handed_config() -> Mapping[str, Any]:
    from project.common.processes import handover

    config = handover.handed_config()
    if config is None:
        raise NotInitializedError(
            "ensure_process_initialized: this process was handed no configuration; call it with one"
        )
    return config


def _inherited_identity() -> Identity | None:
    from project.common.processes import handover

    return handover.inherited_identity()
