"""Children that user code starts from a process of ours end with it, with their managers closed."""

import pickle
import time
from pathlib import Path

import psutil

from project.common.processes.supervision import Supervisor, start_child
from project.common.processes.user_children import Inheritance
from tests.helpers import processes
from tests.helpers.processes import handover_for
from tests.helpers.waiting import until


def test_is_plain_data_where_it_was_made() -> None:
    data = Inheritance({"role": "rank"})

    assert data == {"role": "rank"}
    assert pickle.dumps(data).count(b"_arrive") == 1


def test_a_child_reaches_a_safe_point_before_it_is_ended(start_method: str, tmp_path: Path) -> None:
    handover = handover_for(start_method, tmp_path)
    parent = start_child(processes.start_obedient_user_child, handover, args=(str(tmp_path),))
    until((tmp_path / "on").exists, 30)
    child = psutil.Process(int((tmp_path / "pid").read_text()))
    parent.kill()
    began = time.monotonic()
    Supervisor([parent]).run()
    until((tmp_path / "stopped").exists, 2)
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 5)

    assert (tmp_path / "stopped").read_text() == f"its parent (pid {parent.process.pid}) is gone"
    assert time.monotonic() - began < 5
