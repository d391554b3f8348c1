"""Tensors get where they should be, per thread, and what stays is seen."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from project.common.errors import ConfigError
from project.common.managers.cuda import CUDAManager
from project.common.managers.tensor import TensorManager
from project.common.processes.identity import Identity, Role, current_identity, set_identity


@pytest.fixture(autouse=True)
def rank_process() -> Iterator[None]:
    before, strategy = current_identity(), torch.multiprocessing.get_sharing_strategy()
    set_identity(Identity(role=Role.RANK, rank=0))
    yield
    set_identity(before)
    torch.multiprocessing.set_sharing_strategy(strategy)


def manager(**settings: object) -> TensorManager:
    return TensorManager(cuda=CUDAManager(accelerator="cpu"), **settings)  # type: ignore[arg-type]


def test_makes_tensors_of_the_configured_dtype() -> None:
    tensor = manager(dtype="bfloat16")

    assert tensor.tensor(np.zeros(3)).dtype == torch.bfloat16
    assert tensor.tensor([1, 2]).dtype == torch.int64
    assert tensor.tensor([True]).dtype == torch.bool
    assert tensor.tensor([0.5], dtype=torch.float64).dtype == torch.float64


def test_refuses_an_unknown_dtype() -> None:
    with pytest.raises(
        ConfigError, match=r"managers\.tensor\.dtype: 'float8' is unknown; use float32, float64, bfloat16 or"
    ):
        manager(dtype="float8")


def test_moves_nested_tensors_and_keeps_the_rest() -> None:
    with (tensor := manager()).on_device("meta"):
        moved = tensor.to_device({"x": [torch.zeros(2)], "name": "a", "n": 3})

    assert moved["x"][0].device.type == "meta"
    assert (moved["name"], moved["n"]) == ("a", 3)


def test_what_goes_to_the_cpu_is_fit_for_another_process() -> None:
    weight = torch.ones(2, requires_grad=True)
    moved = manager().to_cpu({"loss": weight * 2, "weight": torch.nn.Parameter(torch.ones(1))})

    assert not moved["loss"].requires_grad
    assert type(moved["weight"]) is torch.Tensor


def test_a_packed_sequence_moves_as_one() -> None:
    packed = pack_sequence([torch.ones(3), torch.ones(1)])

    moved = manager().to_cpu([packed])[0]

    assert isinstance(moved, PackedSequence)
    assert moved.data.tolist() == packed.data.tolist()


def test_the_current_device_belongs_to_a_thread() -> None:
    tensor, seen = manager(), []
    with tensor.on_device("meta"):
        thread = threading.Thread(target=lambda: seen.append(tensor.device))
        thread.start()
        thread.join(60)
        assert tensor.device == torch.device("meta")

    assert seen == [torch.device("cpu")]
    assert tensor.device == torch.device("cpu")


def test_pins_nothing_without_a_cuda_device() -> None:
    batch = {"x": torch.zeros(1)}

    assert manager().pin(batch) is batch


def test_a_leak_is_seen_and_clearing_memory_reports_what_is_left() -> None:
    tensor = manager()
    tensor.mark()
    kept = torch.zeros(2**18)

    assert "tensors: 1 x float32 [262144] on cpu, 1.0 MB" in str(tensor.leak_report())
    del kept
    assert tensor.clear_memory()["rss_mb"] > 0
    assert not tensor.leak_report()
    tensor.close()


def test_tells_how_tensors_are_shared_and_how_much_is_left() -> None:
    tensor = manager(sharing_strategy="file_system")

    assert tensor.sharing_strategy == "file_system" == torch.multiprocessing.get_sharing_strategy()
    health = tensor.check()
    assert health.ok
    assert f"of {tensor.sharing.file_limit} files open" in health.reason


def test_open_files_near_their_limit_are_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = manager()
    monkeypatch.setattr(tensor, "sharing", SimpleNamespace(file_limit=3))

    health = tensor.check()

    assert not health.ok
    assert "ulimit -n" in health.reason


def test_warns_of_batches_that_cannot_fit_into_shared_memory() -> None:
    tensor = manager()

    problem = tensor.check_shared_memory(batch_mb=1e9, prefetch=2, workers=2, ranks=2)

    assert problem is not None
    assert "finds it full ends the run" in problem
    assert tensor.check_shared_memory(batch_mb=0.001, prefetch=2, workers=2, ranks=2) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_pinned_batches_reach_the_device() -> None:
    tensor = TensorManager(cuda=CUDAManager(accelerator="cuda"))
    pinned = tensor.pin({"x": torch.ones(4)})

    assert pinned["x"].is_pinned()
    assert tensor.to_device(pinned)["x"].sum().item() == 4
    assert tensor.to_cpu(tensor.to_device(pinned))["x"].device.type == "cpu"
    assert tensor.clear_memory()["free_mb"] > 0
