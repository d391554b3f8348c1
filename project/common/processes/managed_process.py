"""How every process of the tree is started, and what it does first and last.

First: environment, death with its starter, identity, title, logs, registry, watch over its parent, signal handlers.
Last: managers closed, outcome written. The payload (target and arguments) is unpickled after the first part, so that
even imports that it causes happen in a process that is known, watched and able to say why it failed.
"""

import contextlib
import inspect
import logging
import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Callable
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from multiprocessing.synchronize import Event
from typing import Any

from project.common import process_registry
from project.common.errors import ProcessServerError
from project.common.processes import interrupt, mp_internals, process_entry, tree_folder, unfinished, worker_watch
from project.common.processes.boundary import check_crossing, not_picklable
from project.common.processes.handover import Handover, own_handover
from project.common.processes.identity import Role, current_identity
from project.common.processes.outcome import Status, outcome_of
from project.common.processes.server_answer import answers_in_time
from project.common.processes.telling_queue import TellingQueue

log = logging.getLogger(__name__)


class ManagedProcess(BaseProcess):
    """A process of the tree, started by the process server or by `spawn`. Never a daemon unless its starter says so.

    Args:
        target: A function at module level.
        handover: What the child is given besides the arguments.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        *,
        handover: Handover,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        daemon: bool | None = None,
    ) -> None:
        super().__init__(target=target, args=args, kwargs=kwargs or {}, daemon=daemon)
        self.handover = handover
        self._payload: bytes | None = None

    @property
    def _start_method(self) -> str:
        return self.handover.start_method

    @staticmethod
    def _Popen(process_object: Any) -> Any:  # noqa: N802 - the standard library's name
        return mp_internals.popen(process_object, process_object.handover.start_method)

    @property
    def lost_server(self) -> bool:
        """Whether it ended without an exit code, because the process server that knew it is gone."""
        return mp_internals.has_lost_server(self)

    def start(self) -> None:
        """Checks what the child is given, then starts it.

        Raises:
            ProcessBoundaryError: Something in it cannot cross; nothing was started.
        """
        check_crossing(self.handover.config, name="config")
        if self.handover.identity.role is not Role.WORKER:  # a worker gets torch's own queues, and the data set
            check_crossing(self._given(), name="")
        folder = mp_internals.use_tree_folder()
        mp_internals.hand_tree_folder(self, folder)
        self.handover.mark = tree_folder.mark_for(self.handover.identity.role, folder)
        self.handover.starter_pid = os.getpid()
        self.handover.from_main_thread = threading.current_thread() is threading.main_thread()
        try:
            with answers_in_time() if self._start_method == "forkserver" else contextlib.nullcontext():
                super().start()
        except (ConnectionError, EOFError) as error:
            raise ProcessServerError(
                f"the process server has ended or was killed, so {self.handover.identity.label} could not be started"
            ) from error

    def _given(self) -> dict[str, Any]:
        """What the child is given, by the names of the target's parameters."""
        target, args, kwargs = self._target, self._args, self._kwargs  # type: ignore[attr-defined]
        try:
            bound = inspect.signature(target).bind_partial(*args, **kwargs).arguments
        except (TypeError, ValueError):
            bound = {f"args[{index}]": value for index, value in enumerate(args)} | kwargs
        return {"target": target} | bound

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        payload = (state.pop("_target"), state.pop("_args"), state.pop("_kwargs"))
        try:
            state["_payload"] = bytes(ForkingPickler.dumps(payload))
        except Exception as error:  # whatever an object's own pickling raises
            raise not_picklable(self._given(), error) from error
        return state | {"_config": mp_internals.without_inheritance(state["_config"])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        process_entry.enter_early(self.handover)

    def run(self) -> None:
        """The child's work: enter, unpickle the payload, call it, leave."""
        try:
            error = self._work()
        except RuntimeError as raised:  # torch's signal handler, once more, while the first error was looked at
            error = worker_watch.explain(raised)
        outcome = process_entry.leave(outcome_of(error))
        if self.handover.identity.role is Role.WORKER and outcome.status is Status.INTERRUPTED:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stdout.flush()
            os._exit(outcome.exit_code)  # the standard way waits until somebody has read all batches
        unfinished.exit_past_threads(outcome.exit_code)
        if outcome.exit_code:
            sys.exit(outcome.exit_code)

    def _work(self) -> BaseException | None:
        try:
            try:
                process_entry.enter(self.handover)
                assert self._payload is not None, "only a started process runs"
                target, args, kwargs = pickle.loads(self._payload)
                self._payload = None
                target(*args, **kwargs)
            finally:
                interrupt.disarm()  # within the outer block, which catches an interrupt of this very moment
        except BaseException as raised:  # noqa: BLE001 - turned into this process's outcome
            return process_registry.or_lost_folder(worker_watch.explain(raised), self.handover.identity.run_dir)
        return None


class ManagedContext(BaseContext):
    """A `multiprocessing` context for a rank's DataLoader: its workers are processes of the tree.

    Args:
        n_workers: Workers of that DataLoader, to number them.
    """

    def __init__(self, *, n_workers: int) -> None:
        handover = own_handover()
        self._method = handover.start_method if handover else "spawn"
        self._n_workers, self._n_started = n_workers, 0
        self._context = multiprocessing.get_context(self._method)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_context"], name)

    def get_context(self, method: str | None = None) -> Any:
        """This context for its own method, the standard one for another."""
        return self if method in (None, self._method) else multiprocessing.get_context(method)

    def get_start_method(self, allow_none: bool = False) -> str:
        """`forkserver` or `spawn`."""
        return self._method

    def Queue(self, maxsize: int = 0) -> TellingQueue:  # noqa: N802 - the standard library's name
        """A queue that does not lose batches."""
        return TellingQueue(maxsize, ctx=self._context)

    def Process(  # noqa: N802 - the standard library's name
        self, *, target: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> ManagedProcess:
        """A worker below this rank, watched from its start."""
        identity = current_identity()
        assert identity is not None, "only a process with an identity has workers"
        worker = _worker_number(target, args)
        if worker is None:
            worker = self._n_started % self._n_workers
        self._n_started += 1
        parent = own_handover()
        handover = Handover(
            identity=identity.child(role=Role.WORKER, worker=worker, n_workers=self._n_workers),
            config=parent.config if parent else {},
            environ=dict(os.environ),
            start_method=self._method,
            threads=1,
            deadline_s=parent.deadline_s if parent else 10.0,
        )
        return WorkerProcess(target, handover=handover, args=args, kwargs=kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return (multiprocessing.get_context, (self._method,))


def _worker_number(target: Callable[..., Any], args: tuple[Any, ...]) -> int | None:
    """The number that torch gives the worker."""
    try:
        number: int | None = inspect.signature(target).bind_partial(*args).arguments.get("worker_id")
    except (TypeError, ValueError):
        return None
    return number


class WorkerProcess(ManagedProcess):
    """A DataLoader worker; its rank watches it from the moment it lives."""

    def start(self) -> None:
        """Starts the worker and puts it under its rank's watch."""
        # torch sets this event before it lets its workers go.
        self.done_event = next((arg for arg in self._args if isinstance(arg, Event)), None)  # type: ignore[attr-defined]
        self.row = worker_watch.new_row_slot()
        super().start()
        worker_watch.watch_worker(self)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"done_event": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        worker_watch.use_row_slot(self.row)
