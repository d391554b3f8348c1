"""What children do in the tests of the process layer, and how tests start them."""

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from project.common import process_registry
from project.common.processes import parent_link, stop
from project.common.processes.child import Child, start_child
from project.common.processes.handover import Handover, handed_config, inherited_identity, own_handover, process_environ
from project.common.processes.identity import Identity, Role, current_identity
from project.common.processes.managed_process import ManagedContext, ManagedProcess
from project.common.processes.supervision import Supervisor

log = logging.getLogger("project.tests")


def handover_for(method: str, run_dir: Path | None = None, *, role: Role = Role.TRIAL, **more: Any) -> Handover:
    """What a child of a test is given."""
    place = {name: more.pop(name) for name in ("rank", "world_size", "trial") if name in more}
    identity = Identity(role=role, run_dir=None if run_dir is None else str(run_dir), **place)
    return Handover(identity=identity, start_method=method, environ=more.pop("environ", process_environ()), **more)


def run_child(target: Callable[..., Any], handover: Handover, *args: Any) -> tuple[Child, dict[str, Any]]:
    """Runs one child to its end; returns it and the last message of each kind that it sent."""
    messages: dict[str, Any] = {}
    child = start_child(target, handover, args=args)
    Supervisor([child], on_message=lambda child, kind, data: messages.update({kind: data})).run()
    return child, messages


def send_facts() -> None:
    """Sends what a child can see of itself."""
    identity = current_identity()
    parent_link.send(
        "facts",
        {
            "pid": os.getpid(),
            "parent": os.getppid(),
            "identity": identity.as_dict() if identity else None,
            "config": handed_config(),
            "environ": dict(os.environ),
            "modules": sorted(sys.modules),
            "threads": [thread.name for thread in threading.enumerate()],
            "handlers": {number.name: str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)},
            "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        },
    )


def send_env_and_threads(name: str) -> None:
    """Sends one variable and torch's number of threads."""
    import torch

    parent_link.send("env", os.environ.get(name))
    parent_link.send("threads", torch.get_num_threads())


def end_by(way: str) -> None:
    """Ends in the way that is named."""
    actions: dict[str, Callable[[], Any]] = {
        "return": lambda: None,
        "raise": _raise,
        "sys.exit(0)": lambda: sys.exit(0),
        "os._exit(0)": lambda: os._exit(0),
        "os._exit(255)": lambda: os._exit(255),
        "SIGTERM": lambda: _signal_and_obey(signal.SIGTERM),
        "SIGINT": lambda: _signal_and_obey(signal.SIGINT),
        "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "SIGSEGV": lambda: ctypes.string_at(0),
    }
    actions[way]()


def _raise() -> None:
    raise ValueError("on purpose")


def _signal_and_obey(number: int) -> None:
    os.kill(os.getpid(), number)
    for _ in range(50):
        time.sleep(0.01)
        stop.raise_if_stop_requested()


def work_until_stopped(started: str | None = None) -> None:
    """Works in small steps, as training does."""
    if started is not None:
        Path(started).touch()
    while True:
        time.sleep(0.01)
        stop.raise_if_stop_requested()


def ignore_requests(started: str | None = None) -> None:
    """Never reaches a safe point."""
    if started is not None:
        Path(started).touch()
    time.sleep(600)


def hold_the_gil(started: str) -> None:
    """Is in native code that keeps the interpreter's lock, so that no thread of this process can run."""
    Path(started).touch()
    time.sleep(0.2)
    ctypes.PyDLL(None).sleep(600)


def start_ranks(n_ranks: int, folder: str, target: Callable[..., Any]) -> None:
    """A trial that starts ranks and watches them."""
    handover, identity = own_handover(), current_identity()
    assert handover is not None
    assert identity is not None
    children = [
        start_child(
            target,
            Handover(
                identity=identity.child(role=Role.RANK, rank=rank, world_size=n_ranks),
                start_method=handover.start_method,
            ),
            args=(f"{folder}/rank{rank}",),
        )
        for rank in range(n_ranks)
    ]
    Supervisor(children).run()
    stop.raise_if_stop_requested()


def leave_a_rank_behind(folder: str) -> None:
    """A trial that fails after it has started a rank that nobody watches."""
    handover, identity = own_handover(), current_identity()
    assert handover is not None
    assert identity is not None
    rank = Handover(identity=identity.child(role=Role.RANK, rank=0), start_method=handover.start_method)
    start_child(ignore_requests, rank, args=(f"{folder}/rank0",))
    while not Path(folder, "rank0").exists():
        time.sleep(0.01)
    raise ValueError("after starting a rank")


def send_grandchild_facts() -> None:
    """Starts a child of its own by our context and by the standard one, and sends who forked them."""
    queue = _context().SimpleQueue()
    user = _context().Process(target=put_inherited, args=(queue, True))
    user.start()
    parent_link.send("user", queue.get())
    user.join()
    managed = ManagedContext(n_workers=2).Process(target=put_inherited, args=(queue,))
    managed.start()
    parent_link.send("worker", queue.get())
    managed.join()


def _context() -> Any:
    return multiprocessing.get_context(_method())


def _method() -> str:
    handover = own_handover()
    assert handover is not None
    return handover.start_method


def put_inherited(queue: Any, with_child: bool = False) -> None:
    """In a child that user code started: who it is by inheritance, and who forked it."""
    inherited = current_identity() or inherited_identity()
    facts: dict[str, Any] = {"identity": inherited.as_dict() if inherited else None, "parent": os.getppid()}
    if with_child:
        inner = multiprocessing.get_context("spawn").SimpleQueue()
        child = multiprocessing.get_context("spawn").Process(target=put_inherited, args=(inner,))
        child.start()
        facts["child"] = inner.get()
        child.join()
    queue.put(facts)


def put_data_rows(queue: Any, config: dict[str, Any]) -> None:
    """A user's own child, which counts the rows of the parent's data."""
    from project.common.managers import cleanup_managers, get_data_manager
    from project.common.managers.process_init import ensure_process_initialized

    ensure_process_initialized(config)
    identity = current_identity()
    assert identity is not None
    queue.put((str(identity.role), get_data_manager().n_rows("train")))
    cleanup_managers()


def start_user_child(started: str) -> None:
    """A child of ours that starts a child as users do, and waits."""
    _context().Process(target=ignore_requests, args=(started,)).start()
    time.sleep(600)


def log_and_print(words: str) -> None:
    """Logs and prints."""
    log.info("%s", words)
    print(f"printed {words}", flush=True)


def send_state(names: list[str]) -> None:
    """Sends which of the named modules are loaded."""
    parent_link.send("loaded", [name for name in names if name in sys.modules])


def send_from_thread() -> None:
    """A child whose own child is started from a thread that ends before it."""
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(_start_sleeper()))
    thread.start()
    thread.join()
    process = result[0]
    time.sleep(0.5)
    parent_link.send("alive", process.exitcode is None)
    process.kill()
    process.join()


def _start_sleeper() -> ManagedProcess:
    handover = Handover(identity=Identity(role=Role.WORKER), start_method=_method())
    process = ManagedProcess(time.sleep, handover=handover, args=(600,))
    process.start()
    return process


def ask() -> None:
    """Asks the parent and says what it heard."""
    parent_link.send("question", "prune?")
    parent_link.send("heard", parent_link.process_messages.take("answer", limit_s=10))


def start_obedient_user_child(folder: str) -> None:
    """A child of ours that starts a child as users do, which asks at safe points whether to stop."""
    _context().Process(target=_obey, args=(folder,)).start()
    time.sleep(600)


def _obey(folder: str) -> None:
    Path(folder, "pid").write_text(str(os.getpid()))
    try:
        work_until_stopped(f"{folder}/on")
    except stop.StopRequested as stopped:
        Path(folder, "stopped.part").write_text(stopped.request.reason)
        Path(folder, "stopped.part").rename(Path(folder, "stopped"))


def send_session() -> None:
    """Sends the session that this process is in."""
    parent_link.send("session", os.getsid(0))


def end_with_managers(way: str, path: str) -> None:
    """Ends in the way that is named, with managers whose closing writes a file."""
    from project.common import managers

    def close() -> None:
        Path(path or "/no/such/folder/file").write_text(str(os.getpid()))

    managers.cleanup_managers = close
    end_by(way)


def hold_semaphores(started: str) -> None:
    """Holds locks that lie in shared memory, and never ends."""
    kept = [_context().Lock() for _ in range(3)]
    ignore_requests(started)
    del kept


def step_then_wait(folder: str, hangs: bool) -> None:
    """One step, after which one of two ranks hangs and the other waits for it in a collective operation."""
    import torch.distributed as dist

    identity = current_identity()
    assert identity is not None
    assert identity.rank is not None
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=identity.rank, world_size=2)
    process_registry.set_state("training")
    if hangs:
        time.sleep(0.5)
    process_registry.heartbeat(1)
    time.sleep(600) if hangs else dist.barrier()


def step_then_stop(folder: str) -> None:
    """Joins the other of two ranks, makes a step, and is halted by SIGSTOP."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 2), rank=1, world_size=2)
    process_registry.heartbeat(1)
    stop_own("training")


def stop_own(state: str) -> None:
    """Halts this process by SIGSTOP, in a state."""
    process_registry.set_state(state)
    os.kill(os.getpid(), signal.SIGSTOP)


def step_then_hang(n_steps: int, step_s: float = 1.1) -> None:
    """Makes `n_steps` steps and hangs; a negative number makes as many and returns, 0 prepares and returns."""
    if n_steps == 0:
        process_registry.set_state("building managers")
        time.sleep(1.5)
        return
    process_registry.set_state("training")
    for step in range(1, abs(n_steps) + 1):
        process_registry.heartbeat(step)
        time.sleep(0.1 if n_steps < 0 else step_s)
    while n_steps > 0:
        time.sleep(60)
