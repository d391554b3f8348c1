"""What a process of the tree does first and last."""

import atexit
import contextlib
import faulthandler
import logging
import os
import signal
import sys
from multiprocessing import parent_process
from typing import Any

from project.common import process_registry
from project.common.devices.shared_memory import raise_file_limit
from project.common.processes import (
    interrupt,
    linux,
    logs,
    parent_link,
    shm_cleanup,
    signals,
    tracker,
    tree_folder,
    unfinished,
    user_children,
    worker_watch,
)
from project.common.processes.handover import (
    THREAD_VARIABLES,
    Handover,
    handed_config,
    own_handover,
    set_by_imports,
    set_handover,
)
from project.common.processes.identity import Identity, Role, current_identity, set_identity
from project.common.processes.outcome import Outcome, outcome_of
from project.common.processes.outlived_streams import outlive_readers
from project.common.processes.stall_watch import STACKS_SIGNAL

log = logging.getLogger(__name__)

FINISH_S = 60.0  # where no configuration says otherwise

_exit_code: int | None = None  # once this process has left


def enter_early(handover: Handover) -> None:
    """What must hold before anything else is unpickled: the environment, and death with the starter."""
    set_title(handover.identity)  # before the environment: the title takes the room of the first one
    if handover.environ is not None:
        os.environ.clear()
        os.environ.update(set_by_imports | handover.environ)
    limit_threads(handover.threads)
    if handover.mark is not None:
        tree_folder.use(handover.mark)
    if handover.start_method == "spawn":
        atexit.register(_exit_like_a_fork)  # first registered, so last called
    if handover.start_method == "spawn" and handover.from_main_thread and handover.identity.role is not Role.RANK:
        # A rank closes its managers in order when its trial was killed: its watch and main's registry see to its end.
        linux.die_with_parent()
        if os.getppid() != handover.starter_pid:
            os._exit(1)


def enter(handover: Handover) -> None:
    """Makes this process known and obedient, before its own work."""
    identity = handover.identity
    if identity.role is Role.TRIAL:
        with contextlib.suppress(PermissionError):  # it leads a group already
            os.setsid()
    notes = signals.SignalNotes(deadline_s=handover.deadline_s, ignore=(signal.SIGINT,), name=identity.label)
    notes.install()  # to the end of this process
    signals.let_in()
    interrupt.install()
    shm_cleanup.mark_as_own()
    tracker.bear_a_lost_one()
    raise_file_limit()
    set_identity(identity)
    set_handover(handover)
    logs.set_up_files(identity)
    if logs.shows_on_terminal(identity) and handover.sweep is None:  # a sweep shows all its trials in one table
        logs.set_up_terminal()
    else:
        logs.redirect_output(identity)
    outlive_readers()
    parent = parent_process()
    parent_pid = parent.pid if parent is not None and parent.pid is not None else os.getppid()
    process_registry.register(identity, parent_pid=parent_pid, start_method=handover.start_method)
    _enable_faulthandler(identity)
    parent_link.start_watch(handover)
    limit_threads(handover.threads)


def leave(outcome: Outcome) -> Outcome:
    """Ends the children, closes the managers and writes the outcome; returns what counts in the end."""
    global _exit_code
    process_registry.set_state("closing")
    worker_watch.end_watch()
    try:
        worker_watch.silence_torch()
        user_children.end_children(daemons_only=outcome.exit_code == 0)
        _cleanup_managers()
        if outcome.exit_code == 0 and not _is_worker():  # whose threads serve its batches alone
            unfinished.wait_for_work(_finish_timeout_s())
        user_children.end_children()
        if (handover := own_handover()) is not None and handover.start_method == "forkserver":
            user_children.name_bound_forks()
    except BaseException as error:  # noqa: BLE001 - an interrupt during closing, raised after the rest
        if outcome.exit_code == 0:
            outcome = outcome_of(error)
    if outcome.traceback:
        log.error("%s", outcome.traceback.rstrip(), extra={"terminal": False})
    elif outcome.cause:
        log.info("ends: %s", outcome.cause, extra={"terminal": False})
    process_registry.finish(outcome)
    parent_link.send("outcome", outcome.as_dict())
    interrupt.uninstall()
    logs.tear_down()
    logs.drop_what_nobody_reads()
    _exit_code = outcome.exit_code
    return outcome


def _is_worker() -> bool:
    identity = current_identity()
    return identity is not None and identity.role is Role.WORKER


def _finish_timeout_s() -> float:
    return float((handed_config() or {}).get("processes", {}).get("finish_timeout_s", FINISH_S))


def _exit_like_a_fork() -> None:
    """Leaves without taking the interpreter apart, which takes torch half a second and sometimes crashes."""
    if _exit_code is not None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(_exit_code)


def _cleanup_managers() -> None:
    managers = sys.modules.get("project.common.managers")
    if managers is not None:
        managers.cleanup_managers()


def set_title(identity: Identity) -> None:
    """Shows the role in `ps` and `htop`."""
    name = os.path.basename(identity.run_dir) if identity.run_dir else ""
    linux.set_title(f"project: {identity.label} {name}".rstrip())


def _enable_faulthandler(identity: Identity) -> None:
    """A fatal signal, or SIGQUIT, leaves the stacks of all threads in the process's own log."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logs.AppendHandler) and handler.path.name.startswith(identity.label):
            file = os.dup(handler.fileno())  # outlives the handler
            faulthandler.enable(file=file, all_threads=True)
            if STACKS_SIGNAL is not None:
                faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True)


def limit_threads(threads: int | None) -> None:
    """Thread counts go by call, since a forked child's libraries have read their variables already.

    What is imported later, or started as a process, reads the variables.
    """
    if threads is None:
        return
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
