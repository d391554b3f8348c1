"""The inventory without CUDA, what is visible of it, and requests that cannot be met."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from project.common.devices import inventory
from project.common.devices.inventory import Device, check_devices, device_numbers, visible, visible_devices_env
from project.common.errors import ConfigError, ProcessBoundaryError
from tests.helpers.devices import devices_on_entry

THREE = [
    Device(index=i, uuid=f"GPU-{letter}0", name="H", total_mb=10, free_mb=5, capability=(8, 0))
    for i, letter in enumerate("abc")
]


@pytest.mark.parametrize(
    ("wish", "indexes"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("GPU-b", [1]),
        ("", []),
        ("-1", []),
        ("0,7,1", [0]),
        ("1,1", [1]),
        ("GPU-", []),
    ],
)
def test_shows_what_cuda_would_show(wish: str | None, indexes: list[int]) -> None:
    environment = {} if wish is None else {"CUDA_VISIBLE_DEVICES": wish}

    assert [device.index for device in visible(THREE, environment)] == indexes


def test_a_slice_of_a_device_counts_as_a_device() -> None:
    (shown,) = visible(THREE, {"CUDA_VISIBLE_DEVICES": "MIG-1234"})

    assert (shown.uuid, shown.capability) == ("MIG-1234", (8, 0))


@pytest.mark.parametrize(
    ("requested", "numbers"),
    [
        (1, [0]),
        (2, [0, 1]),
        ("auto", [0, 1, 2]),
        (-1, [0, 1, 2]),
        ([2, 0], [2, 0]),
        ("2", [0, 1]),
        ("1,", [1]),
        ("0,2", [0, 2]),
    ],
)
def test_reads_requests_as_lightning_does(requested: int | str | list[int], numbers: list[int]) -> None:
    assert device_numbers(requested, 3) == numbers


@pytest.mark.parametrize("requested", [0, -2, [], [1, 1], "two", "", "1,1"])
def test_refuses_requests_that_name_no_devices(requested: int | str | list[int]) -> None:
    with pytest.raises(ConfigError, match=r"trainer\.devices: "):
        device_numbers(requested, 3)


def test_more_cuda_devices_than_there_are_is_an_error_with_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")

    with pytest.raises(ConfigError) as caught:
        check_devices(4, accelerator="cuda", n_available=2, n_cores=8)

    assert str(caught.value) == (
        "trainer.devices: 4 asks for cuda device 3 (counted from 0), "
        "and 2 can be seen here (CUDA_VISIBLE_DEVICES=0,1); use at most 2, or trainer.accelerator=cpu"
    )


def test_any_number_of_cpu_ranks_will_do_with_a_remark_above_the_cores() -> None:
    assert check_devices(4, accelerator="cpu", n_available=0, n_cores=8) == ([0, 1, 2, 3], None)
    assert check_devices(3, accelerator="cpu", n_available=0, n_cores=2) == (
        [0, 1, 2],
        "3 CPU ranks share 2 cores: it works, but slowly",
    )


def test_asking_for_the_inventory_imports_no_torch_and_makes_no_noise() -> None:
    code = (
        "import sys; from project.common.devices import inventory as i; i.nvml_devices(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_child_has_its_devices_before_its_first_line(tmp_path: Path) -> None:
    environment = visible_devices_env(["1", "2"])
    assert environment == {"CUDA_VISIBLE_DEVICES": "1,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    before = dict(os.environ)
    os.environ.update(environment)
    try:
        process = multiprocessing.get_context("spawn").Process(target=devices_on_entry, args=(tmp_path / "seen",))
        process.start()
    finally:
        os.environ.clear()
        os.environ.update(before)
    process.join(60)

    assert (tmp_path / "seen").read_text() == "1,2 False"


def test_without_devices_a_child_sees_none() -> None:
    assert visible_devices_env([])["CUDA_VISIBLE_DEVICES"] == ""


def test_devices_are_chosen_while_cuda_is_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    inventory.show_only(["3"])

    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


def test_choosing_devices_too_late_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is read once, when CUDA starts: setting it later had no effect, silently."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)

    with pytest.raises(
        ProcessBoundaryError, match=r"CUDA is initialised already .* visible_devices_env\(lease\.devices\)"
    ):
        inventory.show_only(["0"])


@pytest.mark.gpu
def test_choosing_devices_after_a_tensor_on_one_is_refused() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    torch.zeros(1, device="cuda")

    with pytest.raises(ProcessBoundaryError, match="CUDA is initialised already"):
        inventory.show_only(["0"])


def test_more_ranks_than_a_machine_can_bear_are_refused_before_a_list_of_them_is_made() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.devices: 1000000 ranks on 2 cores; use at most 16"):
        check_devices(1_000_000, accelerator="cpu", n_available=0, n_cores=2)
