"""Devices of this machine, seen without initialising CUDA, and which of them a process may see."""

import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from project.common.errors import ConfigError, ProcessBoundaryError

log = logging.getLogger(__name__)

# A slip of the keyboard must not start a million processes.
MOST_CPU_RANKS, CPU_RANKS_PER_CORE = 16, 4
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Without it CUDA counts the fastest device as 0 and NVML the first on the bus: the numbers would not agree.
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device as the driver knows it.

    Args:
        index: Its place on the bus.
        capability: CUDA compute capability, such as (9, 0).
    """

    index: int
    uuid: str
    name: str
    total_mb: float
    free_mb: float
    capability: tuple[int, int]


def nvml_devices() -> list[Device]:
    """All NVIDIA devices of this machine, without touching CUDA; none where there is no driver."""
    with _nvml() as pynvml:
        if pynvml is None:
            return []
        try:
            return [_describe(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            log.warning("the NVIDIA driver does not answer (%s): its devices are not used", error)
            return []


def memory_by_process() -> dict[int, float]:
    """Device memory in MB of every process that computes on an NVIDIA device, by pid, over all devices."""
    found: dict[int, float] = {}
    with _nvml() as pynvml:
        if pynvml is None:
            return found
        try:
            for index in range(pynvml.nvmlDeviceGetCount()):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
                    found[process.pid] = found.get(process.pid, 0.0) + (process.usedGpuMemory or 0) / 2**20
        except pynvml.NVMLError as error:
            log.debug("the NVIDIA driver does not say which processes compute: %s", error)
    return found


@contextmanager
def _nvml() -> Iterator[Any]:
    """NVIDIA's library, ready to be asked; None where there is no driver."""
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _describe(pynvml: Any, index: int) -> Device:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        total_mb, free_mb = memory.total / 2**20, memory.free / 2**20
    except pynvml.NVMLError:  # devices that share the host's memory have no figure of their own
        total_mb = free_mb = 0.0
    return Device(
        index=index,
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        name=pynvml.nvmlDeviceGetName(handle),
        total_mb=total_mb,
        free_mb=free_mb,
        capability=tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
    )


def visible(devices: Sequence[Device], environment: Mapping[str, str]) -> list[Device]:
    """Those of `devices` that CUDA would show, in its order; like CUDA it stops at the first name that is none."""
    wish = environment.get(VISIBLE)
    if wish is None:
        return list(devices)
    shown: list[Device] = []
    for name in wish.split(","):
        found = _find(devices, name.strip())
        if found is None or found in shown:
            break
        shown.append(found)
    return shown


def _find(devices: Sequence[Device], name: str) -> Device | None:
    if name.startswith("MIG-") and devices:  # a slice of a device: NVML counts whole ones only
        return replace(devices[0], uuid=name, name=f"slice of {devices[0].name}")
    found = [d for d in devices if name == str(d.index) or (name.startswith("GPU-") and d.uuid.startswith(name))]
    return found[0] if len(found) == 1 else None


def device_numbers(requested: int | str | Sequence[int], n_available: int) -> list[int]:
    """Numbers of the devices that `trainer.devices` asks for: a count, `auto` or -1 for all, or a list of numbers."""
    if requested in ("auto", -1, "-1"):
        return list(range(max(1, n_available)))
    numbers = _listed(requested)
    if not numbers or len(set(numbers)) != len(numbers):
        raise ConfigError(f"trainer.devices: {requested!r} names no devices; use a count, auto, or a list like [0, 1]")
    return numbers


def _listed(requested: int | str | Sequence[int]) -> list[int]:
    if isinstance(requested, int):
        return list(range(requested))
    if not isinstance(requested, str):
        return list(requested)
    parts = [part.strip() for part in requested.split(",") if part.strip()]
    if not all(part.isdigit() for part in parts):
        return []
    return [int(part) for part in parts] if "," in requested else list(range(int(requested or 0)))


def check_devices(
    requested: int | str | Sequence[int], *, accelerator: str, n_available: int, n_cores: int
) -> tuple[list[int], str | None]:
    """The numbers of the devices to use, and a remark or None.

    Args:
        requested: As in `trainer.devices`.
        accelerator: cpu, cuda or mps.
        n_available: How many devices of that kind are visible; ignored on the CPU, where ranks share the cores.

    Raises:
        ConfigError: When there are not as many; on the CPU, when so many ranks would bring the machine down.
    """
    if accelerator == "cpu":
        most = max(MOST_CPU_RANKS, CPU_RANKS_PER_CORE * n_cores)
        if isinstance(requested, int) and requested > most:
            raise ConfigError(f"trainer.devices: {requested} ranks on {n_cores} cores; use at most {most}")
        numbers = device_numbers(requested, 1)
        many = len(numbers) > n_cores
        return numbers, f"{len(numbers)} CPU ranks share {n_cores} cores: it works, but slowly" if many else None
    numbers = device_numbers(requested, n_available)
    if max(numbers) >= n_available:
        raise ConfigError(
            f"trainer.devices: {requested!r} asks for {accelerator} device {max(numbers)} (counted from 0), and "
            f"{n_available} can be seen here{_hidden_by(os.environ)}; "
            f"use at most {n_available}, or trainer.accelerator=cpu"
        )
    return numbers, None


def _hidden_by(environment: Mapping[str, str]) -> str:
    return f" ({VISIBLE}={environment[VISIBLE]})" if VISIBLE in environment else ""


def cuda_is_initialised() -> bool:
    """Whether this process has used CUDA already: then it is too late to choose devices, and unsafe to fork."""
    torch = sys.modules.get("torch")
    return bool(torch is not None and torch.cuda.is_initialized()) or has_device_file_open()


def has_device_file_open() -> bool:
    """Whether a file of an NVIDIA device is open here, or was in the process that this one was forked from."""
    try:
        targets = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    except OSError:
        return False
    return any(re.fullmatch(r"/dev/nvidia\d+", target) for target in targets)


def visible_devices_env(devices: Iterable[str]) -> dict[str, str]:
    """What a child's environment needs so that it sees just these devices; with none it sees no device at all."""
    return {VISIBLE: ",".join(devices)} | ORDER


def show_only(devices: Iterable[str]) -> None:
    """Lets this process see just these devices.

    Raises:
        ProcessBoundaryError: When CUDA is initialised already: it reads the variable once, at its start.
    """
    if cuda_is_initialised():
        raise ProcessBoundaryError(
            f"{VISIBLE}: CUDA is initialised already in pid {os.getpid()}, so choosing devices has no effect here; "
            "set it in the environment of the child: visible_devices_env(lease.devices)"
        )
    os.environ.update(visible_devices_env(devices))
