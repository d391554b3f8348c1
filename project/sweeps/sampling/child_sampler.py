"""Main's side of a sampler that works in a process of its own, so that main imports no torch."""

from __future__ import annotations

import atexit
import logging
import pickle
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from optuna.samplers import BaseSampler

from project.common.errors import ChildFailedError, ConfigError, ProcessServerError
from project.common.processes import process_server, stop
from project.common.processes.child import Child, start_child
from project.common.processes.handover import Handover, process_environ
from project.common.processes.identity import Identity, Role
from project.common.processes.outcome import describe_exit
from project.sweeps.sampling.sampler_child import Answer, Request, serve_samples

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

log = logging.getLogger(__name__)

ANSWER_LIMIT_S = 600.0  # a Gaussian process of a thousand trials takes minutes
END_LIMIT_S = 2.0


class _ChildGoneError(ChildFailedError):
    """Raised when the process has ended, though nobody told it to."""


class ChildSampler(BaseSampler):
    """Forwards what Optuna asks to a process that holds the sampler; one that dies is replaced once per question.

    Args:
        node: The sampler's configuration, checked.
        allow: Further targets that may be called.
        start_method: `spawn`; anything else takes the process server if there is one.
    """

    def __init__(self, node: Mapping[str, Any], *, allow: Sequence[str], start_method: str | None = None) -> None:
        self._node, self._allow, self._start_method = dict(node), tuple(allow), start_method
        self._child: Child | None = None
        self._start()

    @property
    def name(self) -> str:
        """The class of the sampler in the process."""
        return str(self._node["_target_"]).rpartition(".")[2]

    @property
    def pid(self) -> int | None:
        """The process; None when it is closed."""
        return None if self._child is None else self._child.process.pid

    def close(self) -> None:
        """Ends the process; a second call does nothing."""
        atexit.unregister(self.close)
        child, self._child = self._child, None
        if child is None:
            return
        child.send("sample", None)
        child.process.join(END_LIMIT_S)
        if child.process.exitcode is None:
            child.kill()
            child.process.join(END_LIMIT_S)
        if child.control is not None:
            child.control.close()
        if child.process.exitcode is not None:
            child.process.close()  # its descriptors, also when an error's traceback still refers to it

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._call("infer_relative_search_space", study, trial)  # type: ignore[no-any-return]

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._call("sample_relative", study, trial, search_space)  # type: ignore[no-any-return]

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._call("sample_independent", study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._call("before_trial", study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: Any, values: Sequence[float] | None) -> None:
        if self._node.get("constraints_func") is not None:
            self._call("after_trial", study, trial, state, values)

    def reseed_rng(self) -> None:
        """Nothing: its seeds come from the trials' numbers."""

    def _call(self, method: str, study: Study, trial: FrozenTrial, *arguments: Any) -> Any:
        trials = study.get_trials(deepcopy=False)
        directions = [direction.name.lower() for direction in study.directions]
        request = pickle.dumps(Request(method, arguments, trial.number, trials, directions))
        try:
            data = self._exchange(request)
        except _ChildGoneError as gone:
            log.warning("%s; another process takes over", gone)
            self._start()
            data = self._exchange(request)
        answer: Answer = pickle.loads(data)
        if answer.error is not None:
            raise ChildFailedError(f"hydra.sweeper.sampler: {self.name} failed: {answer.error}")
        for name, value in (answer.attributes or {}).items():
            study._storage.set_trial_system_attr(trial._trial_id, name, value)
        return answer.value

    def _start(self) -> None:
        self.close()
        handover = Handover(
            identity=Identity(role=Role.TRIAL),
            environ=process_environ(),
            start_method=_start_method(self._start_method),
            threads=1,
        )
        self._child = start_child(serve_samples, handover, args=(self._node, self._allow))
        atexit.register(self.close)  # before multiprocessing's own, which would wait for the process
        try:
            self._receive("ready")
        except BaseException:
            self.close()
            raise

    def _exchange(self, request: bytes) -> bytes:
        if self._child is None:
            raise ChildFailedError("hydra.sweeper.sampler: its process was closed; make a new sampler")
        self._child.send("sample", request)
        data: bytes = self._receive("answer")
        return data

    def _receive(self, wanted: str) -> Any:
        """The next message of that kind; a process that has not sent it by then is none to ask again."""
        assert self._child is not None
        try:
            return _message(self._child, wanted)
        except _ChildGoneError:
            raise
        except BaseException:
            self._child.kill()
            self.close()
            raise


def _message(child: Child, wanted: str) -> Any:
    deadline = time.monotonic() + ANSWER_LIMIT_S
    with stop.woken() as fd:
        while (left := deadline - time.monotonic()) > 0:
            stop.raise_if_stop_requested()
            assert child.control is not None
            if child.control not in (ready := wait([child.control, child.process.sentinel, fd], left)):
                if child.process.sentinel in ready:
                    raise _gone(child)
                continue
            try:
                kind, data = child.control.recv()
            except (EOFError, OSError):
                raise _gone(child) from None
            if kind == "refused":
                raise ConfigError(*data)
            if kind == wanted:
                return data
    raise ChildFailedError(
        f"hydra.sweeper.sampler: its process (pid {child.process.pid}) has not answered for {ANSWER_LIMIT_S:g} s"
    )


def _gone(child: Child) -> _ChildGoneError:
    child.process.join(END_LIMIT_S)
    return _ChildGoneError(
        f"hydra.sweeper.sampler: its process (pid {child.process.pid}) {describe_exit(child.process.exitcode)}"
    )


def _start_method(wished: str | None) -> str:
    if wished == "spawn" or not process_server.is_running():
        return "spawn"
    try:
        process_server.wait_until_ready()
    except ProcessServerError:
        return "spawn"
    return "forkserver"
