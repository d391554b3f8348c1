"""Children that lease devices."""

import time
from pathlib import Path

from project.common.devices.device_leases import DeviceLeases


def hold_lease(pool: list[str], per_trial: int, folder: Path, report: Path) -> None:
    """Leases, writes the names of its devices to `report`, and keeps them until the file `<report>.go` is there."""
    lease = DeviceLeases(pool, per_trial, folder=folder).acquire(timeout_s=60)
    report.with_suffix(".part").write_text(",".join(lease.devices))
    report.with_suffix(".part").rename(report)
    deadline = time.monotonic() + 60
    while not report.with_suffix(".go").exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def devices_on_entry(report: Path) -> None:
    """Writes what this process sees before it has imported anything that could touch a device."""
    import os
    import sys

    report.write_text(f"{os.environ['CUDA_VISIBLE_DEVICES']} {'torch' in sys.modules}")
