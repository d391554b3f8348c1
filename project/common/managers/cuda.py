"""This process's device: which one, how it computes and how much memory it uses."""

import logging
import os
import platform
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from project.common.devices import inventory
from project.common.devices.device_leases import DeviceLeases
from project.common.devices.inventory import Device
from project.common.errors import ConfigError, ProcessBoundaryError
from project.common.managers.base import BaseProcessManager, Health
from project.common.processes.identity import Role

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

Accelerator = Literal["cpu", "cuda", "mps"]
ACCELERATORS = {"auto": "auto", "cpu": "cpu", "cuda": "cuda", "gpu": "cuda", "mps": "mps"}
MATMUL_PRECISIONS = ("highest", "high", "medium")


class CUDAManager(BaseProcessManager):
    """Knows the devices and sets up the one of this process.

    A rank sets up its device when the manager is built. A trial that has ranks below it may look at the inventory and
    lease devices; `device` refuses a GPU there.

    Args:
        accelerator: auto, cpu, cuda (or gpu), mps.
        devices: As in Lightning's Trainer: a count, `auto`, or a list of numbers.
        pool: Names of the devices that trials may lease; None for all that are visible.
        memory_fraction: Share of the device's memory that this process may take; None for all.
        matmul_precision: `high` computes float32 products in TF32; `highest` in float32.
        cudnn_benchmark: Lets cuDNN try out algorithms for each new shape.
        deterministic: Only algorithms that give the same result each time; an operation that has none raises.
    """

    name: ClassVar[str] = "cuda"
    roles: ClassVar[frozenset[Role]] = frozenset({Role.TRIAL, Role.RANK})

    def __init__(
        self,
        *,
        accelerator: Literal["auto", "cpu", "cuda", "gpu", "mps"] = "auto",
        devices: int | str | Sequence[int] = 1,
        pool: Sequence[str] | None = None,
        memory_fraction: float | None = None,
        matmul_precision: Literal["highest", "high", "medium"] = "highest",
        cudnn_benchmark: bool = False,
        deterministic: bool = False,
    ) -> None:
        if accelerator not in ACCELERATORS:
            raise ConfigError(f"trainer.accelerator: {accelerator!r} is unknown; use {', '.join(ACCELERATORS)}")
        if matmul_precision not in MATMUL_PRECISIONS:
            choices = ", ".join(MATMUL_PRECISIONS)
            raise ConfigError(f"managers.cuda.matmul_precision: {matmul_precision!r} is unknown; use {choices}")
        if memory_fraction is not None and not 0 < memory_fraction <= 1:
            raise ConfigError(
                f"managers.cuda.memory_fraction: {memory_fraction} is no share; use 0 to 1, or null for all"
            )
        self._asked_accelerator = ACCELERATORS[accelerator]
        self._asked_devices = devices
        self._asked_pool = pool
        self.memory_fraction = memory_fraction
        self.matmul_precision = matmul_precision
        self.cudnn_benchmark = cudnn_benchmark
        self.deterministic = deterministic
        self._accelerator: Accelerator | None = None
        self._device: torch.device | None = None
        self._before: dict[str, Any] | None = None
        if self.may_use_gpu:
            self._set_up()

    @property
    def may_use_gpu(self) -> bool:
        """Whether the role of this process allows a GPU: only ranks compute."""
        return self.identity.role == Role.RANK

    @property
    def accelerator(self) -> Accelerator:
        """cpu, cuda or mps: the one that was asked for, or the best that is there."""
        if self._accelerator is None:
            self._accelerator = self._choose_accelerator()
        return self._accelerator

    @property
    def device(self) -> "torch.device":
        """Device of this process.

        Raises:
            ProcessBoundaryError: In a process whose role forbids a GPU, when the device would be one.
        """
        import torch

        if self.accelerator == "cpu":
            return torch.device("cpu")
        if not self.may_use_gpu:
            raise ProcessBoundaryError(
                f"managers.cuda: {self.identity.label} (pid {os.getpid()}) may not use {self.accelerator}, ranks may; "
                "make tensors on the CPU here (to_cpu), and move them in the rank (to_device)"
            )
        if self._device is None:
            self._device = torch.device(self.accelerator, self._device_number())
        return self._device

    @property
    def local_rank(self) -> int:
        """Place of this rank among those of its machine: `LOCAL_RANK`, or the rank itself on a single machine."""
        handed = os.environ.get("LOCAL_RANK", "")
        return int(handed) if handed.isdigit() else self.identity.rank or 0

    @property
    def capability(self) -> tuple[int, int] | None:
        """Lowest CUDA capability of this job's devices, so that the ranks of a machine decide alike; None without."""
        if self.accelerator != "cuda":
            return None
        if self.may_use_gpu:
            import torch

            return min(torch.cuda.get_device_capability(number) for number in self._numbers())
        inventory = self.inventory()
        return min(inventory[number].capability for number in self._numbers())

    def inventory(self) -> list[Device]:
        """Visible NVIDIA devices as the driver knows them; CUDA is not initialised by asking."""
        return inventory.visible(inventory.nvml_devices(), os.environ)

    def n_devices(self, requested: int | str | Sequence[int] | None = None) -> int:
        """How many devices `requested` (None: as configured) means here.

        Raises:
            ConfigError: When there are not as many.
        """
        return len(self._numbers(requested))

    def leases(self, per_trial: int = 1) -> DeviceLeases:
        """Leases of the pool's devices for parallel trials, `per_trial` for each."""
        pool = self._asked_pool
        if pool is None:
            pool = [str(device.index) for device in self.inventory()]
        return DeviceLeases(pool, per_trial)

    def show_only(self, names: Iterable[str]) -> None:
        """Lets this process see just these devices; refused when CUDA is initialised already."""
        inventory.show_only(names)

    def memory_stats(self) -> dict[str, float]:
        """Megabytes in use: of this process (`rss_mb`) and on its device."""
        import psutil

        stats = {"rss_mb": psutil.Process().memory_info().rss / 2**20}
        if not self.may_use_gpu or self.accelerator == "cpu":
            return stats
        import torch

        if self.accelerator == "mps":
            return stats | {"allocated_mb": torch.mps.current_allocated_memory() / 2**20}
        free, total = torch.cuda.mem_get_info(self.device)
        return stats | {
            "allocated_mb": torch.cuda.memory_allocated(self.device) / 2**20,
            "reserved_mb": torch.cuda.memory_reserved(self.device) / 2**20,
            "max_allocated_mb": torch.cuda.max_memory_allocated(self.device) / 2**20,
            "free_mb": free / 2**20,
            "total_mb": total / 2**20,
        }

    def check(self) -> Health:
        """Whether the device answers."""
        if not self.may_use_gpu or self.accelerator == "cpu":
            return Health(ok=True, reason=f"{self.accelerator}, {os.cpu_count()} cores")
        try:
            stats = self.memory_stats()
        except RuntimeError as error:
            return Health(ok=False, reason=f"{self.device}: {str(error).splitlines()[0]}")
        return Health(ok=True, reason=f"{self.device}: {stats.get('free_mb', 0):,.0f} MB free")

    def close(self) -> None:
        """Gives back cached memory and sets back what the constructor changed for the whole process."""
        before, self._before = self._before, None
        if before is None:
            return
        import torch

        torch.set_float32_matmul_precision(before["matmul"])
        torch.backends.cudnn.allow_tf32 = before["cudnn_tf32"]
        torch.backends.cudnn.benchmark = before["cudnn_benchmark"]
        _set_deterministic(before["deterministic"])
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def _choose_accelerator(self) -> Accelerator:
        asked = self._asked_accelerator
        if asked == "cpu":
            return "cpu"
        if asked != "mps" and self._n_cuda() > 0:
            return "cuda"
        if asked != "cuda" and _has_mps():
            return "mps"
        if asked == "auto":
            return "cpu"
        raise ConfigError(f"trainer.accelerator: {asked} was asked for, and no such device is here; use cpu or auto")

    def _n_cuda(self) -> int:
        """Only a rank may ask torch, which also knows devices that NVML does not."""
        if not self.may_use_gpu:
            return len(self.inventory())
        import torch

        return torch.cuda.device_count() if torch.cuda.is_available() else 0

    def _numbers(self, requested: int | str | Sequence[int] | None = None) -> list[int]:
        return self._checked(requested)[0]

    def _checked(self, requested: int | str | Sequence[int] | None = None) -> tuple[list[int], str | None]:
        return inventory.check_devices(
            self._asked_devices if requested is None else requested,
            accelerator=self.accelerator,
            n_available=self._n_cuda() if self.accelerator == "cuda" else 1,
            n_cores=_n_cores(),
        )

    def _device_number(self) -> int:
        numbers = self._numbers()
        if self.local_rank >= len(numbers):
            raise ConfigError(
                f"trainer.devices: {self._asked_devices!r} gives no device to local rank {self.local_rank}; "
                "ask for as many devices as this machine has ranks"
            )
        return numbers[self.local_rank]

    def _set_up(self) -> None:
        """Applies what is configured to this whole process."""
        import torch

        numbers, remark = self._checked()
        if remark and self.local_rank == 0:
            log.warning("trainer.devices: %s", remark)
        self._before = {
            "matmul": torch.get_float32_matmul_precision(),
            "cudnn_tf32": torch.backends.cudnn.allow_tf32,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        }
        torch.set_float32_matmul_precision(self.matmul_precision)
        torch.backends.cudnn.allow_tf32 = self.matmul_precision != "highest"
        torch.backends.cudnn.benchmark = self.cudnn_benchmark and not self.deterministic
        _set_deterministic(self.deterministic)
        if self.accelerator == "cuda":
            torch.cuda.set_device(self.device)
            if self.memory_fraction is not None:
                torch.cuda.set_per_process_memory_fraction(self.memory_fraction, self.device)
        log.info("device: %s (%d %s here)", self.device, len(numbers), "rank" if len(numbers) == 1 else "ranks")


def _set_deterministic(is_wanted: bool) -> None:
    import torch

    if torch.are_deterministic_algorithms_enabled() == is_wanted:
        return  # saying it again would import torch's compiler, which takes seconds
    if is_wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts, which is later
    torch.use_deterministic_algorithms(is_wanted)


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _has_mps() -> bool:
    if platform.system() != "Darwin":
        return False
    import torch

    return torch.backends.mps.is_available()
