"""Makes one thing happen at one place of a real run: patches the project's modules as they are imported.

`$CHAOS_DIR/plan.json` says which process (`at`) in which phase is waited for, who is the `victim`, and what it does;
null: it waits for the file `go` while a signal comes from outside. Files answer: `reached` (the place), `acted` (the
event is about to happen). Each happens once per run.
"""

import ctypes
import importlib.machinery
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FOLDER = os.environ.get("CHAOS_DIR", "")
STEP = 5  # in the second epoch: there is a checkpoint by then, however seldom the ranks agree on one
WAIT_S = 60.0


class ChaosError(Exception):
    """What the event `exception` raises."""


def _path(name: str) -> str:
    return os.path.join(FOLDER, name)


def _plan() -> dict[str, Any]:
    with open(_path("plan.json"), encoding="utf-8") as file:
        plan: dict[str, Any] = json.load(file)
    return plan


def who() -> str | None:
    """This process's label; None for those outside of the run (a check, a child that has not entered yet)."""
    module = sys.modules.get("project.common.processes.identity")
    identity = module.current_identity() if module else None
    if identity is not None:
        return str(identity.label) if identity.run_dir is not None else None
    from multiprocessing import parent_process

    if parent_process() is not None:
        return None
    return "server" if sys.argv[:1] == ["-c"] else "main"


def at(phase: str) -> None:
    """A place that this process has come to."""
    plan = _plan()
    if phase != plan["phase"] or who() != plan["at"] or not _note("reached"):
        return
    if plan["do"] is not None and plan["victim"] == plan["at"]:
        _act(plan["do"])
    deadline = time.monotonic() + WAIT_S
    while not os.path.exists(_path("go")) and time.monotonic() < deadline:
        time.sleep(0.01)


def while_supervising() -> None:
    """Main and the trial act while rank 0 waits at the place."""
    plan = _plan()
    if plan["do"] is not None and plan["victim"] == who() != plan["at"] and os.path.exists(_path("reached")):
        _act(plan["do"])


def _note(name: str) -> bool:
    """Writes the file of that name, once for all processes; False when it was there."""
    try:
        os.close(os.open(_path(f"{name}.lock"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    with open(_path(f"{name}.part"), "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "time": time.time()}, file)
    os.replace(_path(f"{name}.part"), _path(name))
    return True


def _act(event: str) -> None:
    if _note("acted"):
        _EVENTS[event]()


def _raise() -> None:
    raise ChaosError("chaos")


def _hold_gil() -> None:
    """Locks a mutex twice; unlike a sleep, no signal ends that."""
    lock = ctypes.PyDLL(None).pthread_mutex_lock
    mutex = ctypes.create_string_buffer(64)
    lock(mutex)
    lock(mutex)


def _exceed_limit() -> None:
    """Allocates more than a limit on the address space leaves."""
    import resource

    with open("/proc/self/statm", encoding="utf-8") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
    try:
        bytearray(512 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _grow() -> None:
    """Fills memory once the runner has put this process into a small cgroup."""
    while not os.path.exists(_path("limited")):
        time.sleep(0.01)
    held = [bytearray(b"x" * (1 << 20)) for _ in range(1024)]
    raise AssertionError(f"{len(held)} MB were not too much")


_EVENTS: dict[str, Callable[[], Any]] = {
    "exception": _raise,
    "sys.exit": lambda: sys.exit(3 if who() == "main" else 0),
    "GIL": _hold_gil,
    "memory": _exceed_limit,
    "OOM": _grow,
}


def _after(owner: Any, name: str, then: Callable[..., None]) -> None:
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        then(*args, **kwargs)
        return result

    setattr(owner, name, wrapped)


def _before(owner: Any, name: str, first: Callable[..., None]) -> None:
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        first(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(owner, name, wrapped)


def _patch_registry(module: ModuleType) -> None:
    def state(name: str) -> None:
        if name == "validating":
            _note("validating")
        if name == "closing" and who() in ("main", "rank0", "rank1"):
            at("closing")
        if name == "saving" and who() != "rank0":  # which alone writes
            at("saving")
        if name == "supervising" and who() == "main":  # it builds no manager: the folder is taken
            at("building")

    def step(number: int) -> None:
        now = module.own_record().history[-1][0] if module.own_record() else ""
        if now in ("training", "validating") and number >= STEP:
            at(now)

    _after(module, "set_state", state)
    _after(module, "heartbeat", step)


def _patch_containers(module: ModuleType) -> None:
    _before(module.Container, "_build", lambda *args: at("building"))


def _patch_process_state(module: ModuleType) -> None:
    def opened(*args: Any, **kwargs: Any) -> None:
        if "worker" in (who() or ""):  # it builds what its rows need, and these need nothing
            at("building")

    _after(module, "open_container", opened)


def _patch_entry(module: ModuleType) -> None:
    def closing() -> None:
        if who() not in ("rank0", "rank1"):  # whose closing begins with their group and W&B
            at("closing")

    _after(module, "enter", lambda handover: at("importing"))  # what the process is for is imported next
    _before(module, "_cleanup_managers", closing)


def _patch_checkpoint_file(module: ModuleType) -> None:
    _after(module, "_write", lambda *args: at("saving"))  # written beside, not yet in place


def _patch_worker_watch(module: ModuleType) -> None:
    started = time.time()

    def row(number: int) -> None:
        if "worker" not in (who() or ""):  # a rank looks at rows before it trains
            return
        is_validating = os.path.exists(_path("validating")) and _started_since("validating", started)
        at("validating" if is_validating else "training")

    _after(module, "note_row", row)


def _started_since(name: str, imported: float) -> bool:
    """Workers for validation start when it begins; those for training are older."""
    record = sys.modules["project.common.process_registry"].own_record()
    with open(_path(name), encoding="utf-8") as file:
        return bool((record.started if record else imported) > json.load(file)["time"])


def _patch_supervision(module: ModuleType) -> None:
    supervisor, timeout = module.Supervisor, module.Supervisor.seconds_to_next

    def short(self: Any) -> float | None:
        found: float | None = timeout(self)
        return min(0.05, found if found is not None else 0.05)

    plan = _plan()
    if plan["do"] is not None and plan["victim"] in ("main", "trial"):
        supervisor.seconds_to_next = short
        _before(supervisor, "look_around", lambda self: while_supervising())


_PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "project.common.process_registry": _patch_registry,
    "project.common.containers": _patch_containers,
    "project.common.process_state": _patch_process_state,
    "project.common.processes.process_entry": _patch_entry,
    "project.common.files.checkpoint_file": _patch_checkpoint_file,
    "project.common.processes.worker_watch": _patch_worker_watch,
    "project.common.processes.supervision": _patch_supervision,
}
_IMPORTED_BY = {"hydra": "main", "torchmetrics": "server"}


class _Finder:
    """Patches modules right after they were executed; importing itself is a place, too."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in _IMPORTED_BY and who() == _IMPORTED_BY[name]:
            at("importing")
        if name not in _PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            _after(spec.loader, "exec_module", _PATCHES[name])
        return spec


def install() -> None:
    """In every Python process of the run that starts anew; those forked from the server have it from there."""
    sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
