"""Being the main process of a run or sweep: shown to `project.ps`, known to children, and afterwards as before."""

from collections.abc import Iterator
from contextlib import contextmanager

from project.common import live_runs, process_registry
from project.common.processes.handover import share_identity
from project.common.processes.identity import ProcessKey, current_identity, set_identity


@contextmanager
def being_main(run_dir: str) -> Iterator[None]:
    """Within, this process is main of what lies in `run_dir`; the caller sets its identity."""
    before = current_identity()
    live_runs.remove_stale_pointers()
    pointer = live_runs.point_to_run(run_dir, ProcessKey.own())
    try:
        yield
    finally:
        if pointer is not None:
            pointer.unlink(missing_ok=True)
        set_identity(before)
        share_identity(before)
        process_registry.forget()
