"""Tensors of this process: where they are, how they get there, and whether any stay too long."""

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from project.common.devices import leaks, shared_memory
from project.common.devices.nested import map_leaves
from project.common.errors import ConfigError
from project.common.managers.base import BaseManager, Health, ThreadLocal
from project.common.processes.identity import Role

if TYPE_CHECKING:
    import torch

    from project.common.managers.cuda import CUDAManager

log = logging.getLogger(__name__)

DTYPES = ("float32", "float64", "bfloat16", "float16")


class TensorManager(BaseManager):
    """Makes and moves tensors. Each thread has its own current device.

    Args:
        dtype: Of the floating-point tensors that `tensor` makes; those that are moved keep theirs.
        pin_memory: Lets `pin` copy to page-locked memory where there is a CUDA device.
        sharing_strategy: How workers hand tensors over: auto, file_descriptor or file_system.
        trace_frames: Depth of the traces with which the leak report says where something was made; 0 for none.
    """

    name: ClassVar[str] = "tensor"
    roles: ClassVar[frozenset[Role]] = frozenset({Role.RANK})

    def __init__(
        self,
        *,
        cuda: "CUDAManager",
        dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32",
        pin_memory: bool = True,
        sharing_strategy: Literal["auto", "file_descriptor", "file_system"] = "auto",
        trace_frames: int = 0,
    ) -> None:
        if dtype not in DTYPES:
            raise ConfigError(
                f"managers.tensor.dtype: {dtype!r} is unknown; use {', '.join(DTYPES[:-1])} or {DTYPES[-1]}"
            )
        self._cuda = cuda
        self._dtype = dtype
        self._may_pin = pin_memory and cuda.accelerator == "cuda"
        self.sharing = shared_memory.apply_sharing(sharing_strategy)
        self._leaks = leaks.LeakTracker(n_frames=trace_frames)
        self._local = ThreadLocal(device=None)
        log.debug("tensors are shared by %s: %s", self.sharing.strategy, self.sharing.reason)

    @property
    def sharing_strategy(self) -> str:
        """How torch shares tensors between processes here; workers call `apply_sharing` for theirs."""
        return self.sharing.strategy

    @property
    def device(self) -> "torch.device":
        """Current device of this thread: this process's own, unless within `on_device`."""
        return self._local.device or self._cuda.device

    @property
    def dtype(self) -> "torch.dtype":
        """Of the floating-point tensors that `tensor` makes."""
        import torch

        return getattr(torch, self._dtype)

    @contextmanager
    def on_device(self, device: "torch.device | str") -> Iterator["torch.device"]:
        """Makes `device` the current one of this thread for a while."""
        import torch

        before = self._local.device
        self._local.device = torch.device(device)
        try:
            yield self._local.device
        finally:
            self._local.device = before

    def tensor(self, data: Any, *, dtype: "torch.dtype | None" = None) -> "torch.Tensor":
        """A tensor of `data` (numbers, lists, numpy) on the current device.

        Args:
            dtype: None gives floating-point data the configured one, and leaves integers and booleans as they are.
        """
        import torch

        made = torch.as_tensor(data)
        if dtype is None and made.is_floating_point():
            dtype = self.dtype
        return made.to(device=self.device, dtype=dtype)

    def to_device(self, nested: Any) -> Any:
        """The same structure with every tensor on the current device; pinned ones are copied in the background."""
        device = self.device
        return _map_tensors(nested, lambda tensor: tensor.to(device, non_blocking=_is_pinned(tensor)))

    def to_cpu(self, nested: Any) -> Any:
        """The same structure with every tensor on the CPU and cut off from its graph, fit for another process."""
        return _map_tensors(nested, lambda tensor: _detached(tensor).cpu())

    def pin(self, nested: Any) -> Any:
        """The same structure in page-locked memory, which a CUDA device reads by itself; unchanged without one."""
        return _map_tensors(nested, lambda tensor: tensor.pin_memory()) if self._may_pin else nested

    def clear_memory(self) -> dict[str, float]:
        """Collects garbage and gives cached memory back to the device; returns the statistics afterwards."""
        import torch

        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
            torch.cuda.ipc_collect()
        if self._cuda.accelerator == "mps":
            torch.mps.empty_cache()
        return self._cuda.memory_stats()

    def mark(self) -> None:
        """Remembers what is there now, for `leak_report`."""
        self._leaks.mark()

    def leak_report(self) -> leaks.LeakReport:
        """What grew since `mark()`; without one, everything that is there. Takes about a second for a large process."""
        return self._leaks.report()

    def check_shared_memory(self, *, batch_mb: float, prefetch: int, workers: int, ranks: int = 1) -> str | None:
        """What to warn of before loader workers start, or None when their batches will fit into shared memory."""
        space = shared_memory.shm_mb()
        if space is None:
            return None
        return shared_memory.shared_memory_problem(
            batch_mb=batch_mb, prefetch=prefetch, workers=workers, ranks=ranks, free_mb=space[0]
        )

    def check(self) -> Health:
        """Free shared memory and open files; not ok when either is nearly used up."""
        n_open, space = shared_memory.n_open_files(), shared_memory.shm_mb()
        files = f"{n_open} of {self.sharing.file_limit} files open"
        problem = shared_memory.open_files_problem(n_open=n_open or 0, file_limit=self.sharing.file_limit)
        if problem:
            return Health(ok=False, reason=problem)
        if space is None:
            return Health(ok=True, reason=files)
        free, total = space
        is_ok = free > total * (1 - shared_memory.NEARLY_FULL)
        return Health(ok=is_ok, reason=f"{free:,.0f} of {total:,.0f} MB shared memory free, {files}")

    def close(self) -> None:
        """Forgets the mark and ends its tracing."""
        self._leaks.stop()


def _map_tensors(nested: Any, function: Callable[[Any], Any]) -> Any:
    import torch
    from torch.nn.utils.rnn import PackedSequence

    # A packed sequence moves as one: its batch sizes have to stay on the CPU.
    return map_leaves(nested, function, is_leaf=lambda part: isinstance(part, torch.Tensor | PackedSequence))


def _is_pinned(tensor: Any) -> bool:
    return tensor.device.type == "cpu" and tensor.is_pinned() if hasattr(tensor, "device") else False


def _detached(tensor: Any) -> Any:
    return tensor.detach() if hasattr(tensor, "detach") else tensor._replace(data=tensor.data.detach())
