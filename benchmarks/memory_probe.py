"""What each process of a tree holds for itself once its managers are built.

    python -m benchmarks.memory_probe forkserver RUN_FOLDER

The tree is started as a run starts it: main, a trial, a rank below it, a DataLoader worker below that.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import yaml

from project.common import process_state
from project.common.managers import get_data_manager
from project.common.managers.process_init import ensure_process_initialized
from project.common.processes import parent_link, process_server
from project.common.processes.child import Child, start_child
from project.common.processes.handover import Handover, own_handover
from project.common.processes.identity import Identity, Role, current_identity
from project.common.processes.managed_process import ManagedContext
from project.common.processes.supervision import Supervisor
from project.training.workers import start_worker

MB = 2**20


def build_managers() -> float:
    """Builds every manager of this process's role; returns the seconds that this took."""
    handover = own_handover()
    assert handover is not None
    began = time.perf_counter()
    ensure_process_initialized(handover.config)
    process_state.current_container("directory").build_all()
    return time.perf_counter() - began


def memory() -> dict[str, float]:
    """This process's memory in MB: `rss`, and `uss`, which no other process shares."""
    info = psutil.Process().memory_full_info()
    return {"rss": info.rss / MB, "uss": info.uss / MB}


def run_trial() -> None:
    """Entry of the trial: measures itself, then lets a rank do so."""
    build_managers()
    parent_link.send("trial", memory())
    identity = current_identity()
    assert identity is not None
    run_child(run_rank, identity.child(role=Role.RANK, rank=0), parent_link.send)


def run_rank() -> None:
    """Entry of the rank: measures itself, then lets a worker do so."""
    from torch.utils.data import DataLoader

    import project.training.rank  # noqa: F401 - what every rank needs

    seconds = build_managers()
    parent_link.send("rank", memory() | {"build_s": seconds})
    get_data_manager().prepare()
    loader: DataLoader[Any] = DataLoader(
        OwnMemory(),  # type: ignore[arg-type]
        batch_size=None,
        num_workers=1,
        multiprocessing_context=ManagedContext(n_workers=1),
        worker_init_fn=start_worker,
    )
    parent_link.send("worker", next(iter(loader)))


class OwnMemory:
    """A data set whose one row is the memory of the worker that reads it."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> dict[str, float]:
        build_managers()
        get_data_manager().prepare()
        return memory()


def run_child(target: Any, identity: Identity, send: Any) -> None:
    """Runs a child to its end and passes on what it sends.

    Raises:
        RuntimeError: It failed.
    """
    handover = own_handover()
    assert handover is not None
    given = Handover(
        identity=identity, config=handover.config, environ=dict(os.environ), start_method=handover.start_method
    )
    supervisor = Supervisor([start_child(target, given)], on_message=lambda child, kind, data: send(kind, data))
    supervisor.run()
    failed: Child | None = supervisor.first_failure
    if failed is not None:
        raise RuntimeError(failed.how_it_ended())


def measure(run_dir: Path, method: str) -> dict[str, dict[str, float]]:
    """Starts the tree by `method` with the configuration of a finished run; returns each role's memory."""
    from project.common.processes.handover import set_handover

    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    identity = Identity(role=Role.MAIN, run_dir=str(run_dir))
    found: dict[str, dict[str, float]] = {}
    if method == "forkserver":
        process_server.start()
        process_server.wait_until_ready()
    set_handover(Handover(identity=identity, config=config, start_method=method))
    try:
        run_child(run_trial, identity.child(role=Role.TRIAL), lambda kind, data: found.update({kind: data}))
    finally:
        set_handover(None)
        process_server.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[2]), sys.argv[1])))
