"""The device of this process, and that only ranks touch one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from project.common.devices import inventory
from project.common.devices.inventory import Device
from project.common.errors import ConfigError, ProcessBoundaryError
from project.common.managers.cuda import CUDAManager
from project.common.processes.identity import Identity, Role, current_identity, set_identity

OLD_AND_NEW = [
    Device(index=0, uuid="GPU-a", name="old", total_mb=10, free_mb=5, capability=(7, 5)),
    Device(index=1, uuid="GPU-b", name="new", total_mb=10, free_mb=5, capability=(9, 0)),
]


@pytest.fixture(autouse=True)
def rank_process() -> Iterator[None]:
    before = current_identity()
    set_identity(Identity(role=Role.RANK, rank=0))
    yield
    set_identity(before)


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's answer, for what is decided from it in processes that never touch CUDA."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(inventory, "nvml_devices", lambda: OLD_AND_NEW)


def test_computes_on_the_cpu_when_asked_to() -> None:
    cuda = CUDAManager(accelerator="cpu", devices=2)

    assert (cuda.device, cuda.accelerator, cuda.n_devices()) == (torch.device("cpu"), "cpu", 2)
    assert cuda.check().ok
    assert cuda.memory_stats()["rss_mb"] > 10
    cuda.close()


@pytest.mark.usefixtures("two_devices")
def test_a_trial_sees_the_inventory_but_may_use_no_device() -> None:
    set_identity(Identity(role=Role.TRIAL))
    cuda = CUDAManager(devices=2)

    assert [device.name for device in cuda.inventory()] == ["old", "new"]
    assert cuda.n_devices() == 2
    with pytest.raises(
        ProcessBoundaryError, match=r"managers\.cuda: trial \(pid \d+\) may not use cuda, ranks may; .*to_cpu"
    ):
        _ = cuda.device


@pytest.mark.usefixtures("two_devices")
def test_asking_a_trial_for_more_devices_than_visible_names_the_key() -> None:
    set_identity(Identity(role=Role.TRIAL))

    with pytest.raises(ConfigError, match=r"trainer\.devices: 3 asks for cuda device 2"):
        CUDAManager(devices=3).n_devices()


@pytest.mark.usefixtures("two_devices")
def test_decides_by_the_weakest_device_so_that_all_ranks_agree() -> None:
    set_identity(Identity(role=Role.TRIAL))

    assert CUDAManager(devices=2).capability == (7, 5)
    assert CUDAManager(devices=[1]).capability == (9, 0)


@pytest.mark.usefixtures("two_devices")
def test_leases_the_visible_devices_or_the_configured_pool() -> None:
    set_identity(Identity(role=Role.TRIAL))

    assert CUDAManager().leases().pool == ["0", "1"]
    assert CUDAManager(pool=["a", "b", "c", "d"]).leases(2).n_parallel == 2


def test_refuses_settings_that_are_none() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.accelerator: 'tpu' is unknown; use auto, cpu, cuda, gpu, mps"):
        CUDAManager(accelerator="tpu")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"managers\.cuda\.memory_fraction: 1\.5 is no share"):
        CUDAManager(memory_fraction=1.5)
    with pytest.raises(ConfigError, match=r"managers\.cuda\.matmul_precision: 'low' is unknown"):
        CUDAManager(matmul_precision="low")  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_cuda_where_there_is_none_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"cuda was asked for, and no such device is here; use cpu"):
        CUDAManager(accelerator="gpu")


def test_process_wide_settings_are_set_back_on_closing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # torch sets it on the way
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    cuda = CUDAManager(accelerator="cpu", deterministic=True, matmul_precision="high")
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.get_float32_matmul_precision() == "high"
    cuda.close()
    cuda.close()

    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_float32_matmul_precision() == "highest"


def test_more_ranks_than_cores_are_remarked_once(caplog: pytest.LogCaptureFixture) -> None:
    cuda = CUDAManager(accelerator="cpu", devices=12)
    cuda.n_devices()
    assert cuda.device.type == "cpu"

    assert len([record for record in caplog.records if "CPU ranks share" in record.message]) == 1


def test_the_local_rank_is_handed_over_or_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    set_identity(Identity(role=Role.RANK, rank=5, world_size=8))
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert CUDAManager(accelerator="cpu").local_rank == 5

    monkeypatch.setenv("LOCAL_RANK", "1")
    assert CUDAManager(accelerator="cpu").local_rank == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_rank_sets_up_its_device_and_reports_its_memory() -> None:
    cuda = CUDAManager(accelerator="cuda", memory_fraction=0.5)
    kept = torch.zeros(2**20, device=cuda.device)

    assert cuda.device == torch.device("cuda", 0)
    assert cuda.memory_stats()["allocated_mb"] >= kept.nbytes / 2**20
    assert cuda.inventory()[0].capability == torch.cuda.get_device_capability()
    assert cuda.check().ok
    cuda.close()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_more_devices_than_the_machine_has_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.devices"):
        CUDAManager(accelerator="cuda", devices=torch.cuda.device_count() + 1)
