"""The public functions for managers. No manager module is imported here, so that every process may import this."""

import gc
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from project.common import process_state
from project.common.processes.identity import Identity, Role, current_identity

if TYPE_CHECKING:
    from project.common.managers.amp import AMPManager
    from project.common.managers.batch import BatchManager
    from project.common.managers.cuda import CUDAManager
    from project.common.managers.data import DataManager
    from project.common.managers.directory import DirectoryManager
    from project.common.managers.metrics import MetricsManager
    from project.common.managers.model import ModelManager
    from project.common.managers.tensor import TensorManager
    from project.common.managers.tokenizer import TokenizerManager
    from project.common.managers.wandb import WandbManager


def initialize_factory(config: Mapping[str, Any], *, role: Role | str | None = None) -> None:
    """Gives this process its managers; each is built when it is first asked for.

    Call it once, in the process that owns the run. The same configuration again does nothing.

    Args:
        config: The whole configuration or some managers of it, a dict or a DictConfig.
        role: None takes the identity that this process has, or else becomes a rank: `RANK` and `WORLD_SIZE` of the
            environment say which.

    Raises:
        ConfigError: The configuration cannot work, or is another than the one that this process has managers from.
    """
    role = process_state.parse_role(role)
    identity = current_identity()
    if identity is None or (role is not None and identity.role != role):
        identity = _make_identity(identity, role or Role.RANK)
    process_state.open_container(config, identity=identity, must_be=role)


def cleanup_managers() -> None:
    """Closes this process's managers, each before what it needs; may be called again, and from any thread.

    What fails or hangs is logged and keeps nothing else from closing. An interrupt is raised after the rest.
    """
    process_state.close_container()


def clear_memory() -> None:
    """Gives unused memory back: garbage, and what torch's allocator caches on the device."""
    tensor = process_state.built_manager("tensor")
    if tensor is not None:
        tensor.clear_memory()
        return
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def get_manager(name: str) -> Any:
    """This process's manager by its configuration key; for managers that you added."""
    return process_state.current_container(name).get(name)


def get_directory_manager() -> "DirectoryManager":
    """This process's own instance, like all below."""
    return get_manager("directory")


def get_cuda_manager() -> "CUDAManager":
    return get_manager("cuda")


def get_tensor_manager() -> "TensorManager":
    return get_manager("tensor")


def get_tokenizer_manager() -> "TokenizerManager":
    return get_manager("tokenizer")


def get_data_manager() -> "DataManager":
    return get_manager("data")


def get_batch_manager() -> "BatchManager":
    return get_manager("batch")


def get_model_manager() -> "ModelManager":
    return get_manager("model")


def get_amp_manager() -> "AMPManager":
    return get_manager("amp")


def get_metrics_manager() -> "MetricsManager":
    return get_manager("metrics")


def get_wandb_manager() -> "WandbManager":
    return get_manager("wandb")


def _make_identity(known: Identity | None, role: Role) -> Identity:
    if known is not None:
        return known.child(role=role)
    if role is not Role.RANK:
        return Identity(role=role)
    return Identity(role=role, rank=int(os.environ.get("RANK", "0")), world_size=int(os.environ.get("WORLD_SIZE", "1")))
