"""No two live trials share a device."""

import multiprocessing
import re
import threading
import time
from pathlib import Path

import pytest

from project.common.devices.device_leases import DeviceLeases
from project.common.errors import ConfigError, ProjectError
from project.common.processes import stop
from tests.helpers.devices import hold_lease

LIMIT_S = 60.0


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path.name}"
        time.sleep(0.01)
    return path.read_text()


def test_two_leases_never_share_a_device(tmp_path: Path) -> None:
    leases = DeviceLeases(["0", "1", "2"], folder=tmp_path)
    first, second = leases.acquire(timeout_s=1), leases.acquire(timeout_s=1)

    assert (first.devices, second.devices) == (("0",), ("1",))


def test_devices_that_finish_out_of_order_are_leased_again(tmp_path: Path) -> None:
    leases = DeviceLeases(["0", "1", "2"], folder=tmp_path)
    held = [leases.acquire(timeout_s=1) for _ in range(3)]
    assert leases.try_acquire() is None

    held[1].release()

    assert leases.acquire(timeout_s=1).devices == ("1",)


def test_a_trial_may_have_several_devices_and_gets_all_or_none(tmp_path: Path) -> None:
    leases = DeviceLeases(["0", "1", "2"], 2, folder=tmp_path)
    with leases.acquire(timeout_s=1) as lease:
        assert lease.devices == ("0", "1")
        assert leases.n_parallel == 1
        assert leases.try_acquire() is None

    assert DeviceLeases(["2", "1", "0"], 3, folder=tmp_path).acquire(timeout_s=1).devices == ("2", "1", "0")


def test_an_unlucky_request_keeps_nothing(tmp_path: Path) -> None:
    pairs, singles = DeviceLeases(["0", "1"], 2, folder=tmp_path), DeviceLeases(["0", "1"], folder=tmp_path)
    held = singles.acquire(timeout_s=1)
    assert pairs.try_acquire() is None

    assert singles.acquire(timeout_s=1).devices == ("1",)
    held.release()


def test_another_process_keeps_its_devices_until_it_is_killed(tmp_path: Path) -> None:
    report = tmp_path / "report"
    process = multiprocessing.get_context("spawn").Process(
        target=hold_lease, args=(["0", "GPU-1/a"], 2, tmp_path / "locks", report)
    )
    process.start()
    assert wait_for(report) == "0,GPU-1/a"
    leases = DeviceLeases(["0", "GPU-1/a"], folder=tmp_path / "locks")
    assert leases.try_acquire() is None

    process.kill()
    process.join(LIMIT_S)

    assert leases.acquire(timeout_s=1).devices == ("0",)


def test_another_thread_may_give_a_lease_back(tmp_path: Path) -> None:
    leases = DeviceLeases(["0"], folder=tmp_path)
    lease = leases.acquire(timeout_s=1)
    thread = threading.Thread(target=lease.release)
    thread.start()
    thread.join(LIMIT_S)
    lease.release()

    assert leases.acquire(timeout_s=1).devices == ("0",)


def test_waiting_for_a_device_has_a_limit(tmp_path: Path) -> None:
    leases = DeviceLeases(["0"], folder=tmp_path)
    held = leases.acquire(timeout_s=1)

    with pytest.raises(
        ProjectError, match=r"devices 0: fewer than 1 got free within 0 s; .*" + re.escape(str(tmp_path))
    ):
        leases.acquire(timeout_s=0)
    held.release()


def test_waiting_for_a_device_obeys_a_request_to_stop(tmp_path: Path) -> None:
    leases = DeviceLeases(["0"], folder=tmp_path)
    held = leases.acquire(timeout_s=1)
    stop.request_stop(stop.StopRequest(reason="SIGINT", exit_code=130, deadline=time.monotonic() + 10))
    try:
        with pytest.raises(stop.StopRequested):
            leases.acquire(timeout_s=LIMIT_S)
    finally:
        stop.forget_stop_request()
        held.release()


def test_impossible_pools_are_refused_with_their_numbers() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.devices: a trial needs 3 devices, the pool has 2 \(0, 1\)"):
        DeviceLeases(["0", "1"], 3)
    with pytest.raises(ConfigError, match=r"managers\.cuda\.pool: .* names a device twice"):
        DeviceLeases(["0", "0"])
