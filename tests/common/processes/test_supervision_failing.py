"""A parent whose own code fails while it watches still ends those below it in order."""

from pathlib import Path

import pytest

from project.common import process_registry
from project.common.processes.child import start_child
from project.common.processes.identity import Role
from project.common.processes.supervision import Supervisor, end_subtree
from tests.helpers import processes
from tests.helpers.processes import handover_for


class FailsOnce(Supervisor):
    """Fails at its first turn after the ranks work."""

    folder: Path
    has_failed = False

    def _look_for_stalls(self) -> None:
        if (self.folder / "rank0").exists() and (self.folder / "rank1").exists() and not self.has_failed:
            self.has_failed = True
            raise RuntimeError("in the parent")

    def seconds_to_next(self) -> float | None:
        return 0.05


def test_ranks_below_a_failing_main_end_in_order(start_method: str, tmp_path: Path) -> None:
    """Nothing was left of the time for their level: they were cut, and left what they held."""
    arguments = (2, str(tmp_path), processes.work_until_stopped)
    supervisor = FailsOnce([start_child(processes.start_ranks, handover_for(start_method, tmp_path), args=arguments)])
    supervisor.folder = tmp_path

    with pytest.raises(RuntimeError, match="in the parent"):
        supervisor.run()

    assert end_subtree(str(tmp_path)) == []
    ranks = [record for record in process_registry.read_run(tmp_path) if record.identity.role is Role.RANK]
    causes = [(record.outcome or {}).get("cause") for record in ranks]
    assert causes == ["RuntimeError in the parent"] * 2
