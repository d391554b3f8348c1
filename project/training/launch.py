"""Main's part of a run: check, make the folder, start the trial, watch it, say how it ended. Never imports torch."""

import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from project.common import process_registry
from project.common.being_main import being_main
from project.common.config_check import check_light
from project.common.config_recipes import check_managers_of_run
from project.common.config_shape import check_complete
from project.common.config_tree import print_tree
from project.common.errors import ChildFailedError, ConfigError, ProjectError
from project.common.files.run_folder import RunFolder, choose_run_folder
from project.common.files.secrets import remember_secrets
from project.common.plain_config import as_plain
from project.common.processes import logs, process_server, signals, stop
from project.common.processes.child import Child, start_child
from project.common.processes.handover import Handover, process_environ, share_identity
from project.common.processes.identity import Identity, Role, set_identity
from project.common.processes.outcome import Outcome, Status, outcome_of, refusal_in
from project.common.processes.stall_watch import StallWatch
from project.common.processes.start_method import choose_start_method
from project.common.processes.supervision import Supervisor, end_strays, end_subtree
from project.common.server_record import server_noted
from project.training import report
from project.training.ending import may_succeed_again, outcome_of_trial, unwritten
from project.training.job import bound_to_launcher, job_folder, raise_failure
from project.training.sweep_trial import is_trial, objectives, run_as_trial
from project.training.trial import check_config, run_trial

if TYPE_CHECKING:
    from omegaconf import DictConfig

log = logging.getLogger(__name__)

# What the wait before a restart, which doubles each time, does not exceed.
_LONGEST_WAIT_S = 300.0


def supervise(cfg: "DictConfig") -> float | list[float] | None:
    """Hydra's task function: runs one configuration as one trial; returns the objective's value.

    In a process that is a trial it runs the trial itself. Elsewhere it exits with the run's exit code unless that is 0;
    a job of a multirun that fails raises instead.
    """
    from hydra.core.hydra_config import HydraConfig

    config = as_plain(cfg)
    overrides = list(HydraConfig.get().overrides.task)
    if is_trial():
        return run_as_trial(config, overrides=overrides)
    folder = job_folder()
    with bound_to_launcher():
        outcome, result = run(config, overrides=overrides, folder=folder)
    if folder is not None:
        raise_failure(outcome)
    if outcome.exit_code:
        sys.exit(outcome.exit_code)
    if folder is not None and result is not None:
        return objectives(config, result)
    return None if result is None else result.get("metrics", {}).get(config["objective"]["metric"])


def run(
    config: Mapping[str, Any], *, overrides: list[str] | None = None, folder: Path | None = None
) -> tuple[Outcome, dict[str, Any] | None]:
    """Runs one configuration in a process tree of its own.

    Args:
        config: Resolved.
        overrides: What was typed, for the record.
        folder: Where it runs; None for a new folder of its own, or one that it goes on in.

    Raises:
        ProjectError: The configuration, the data or the checkpoint will not do; no folder is left.
    """
    logs.set_up_terminal()
    try:
        config = as_plain(config)
        remember_secrets(config)
        problems = check_light(config) or check_complete(config) or list(check_managers_of_run(config))
        if problems:
            raise ConfigError(*problems)
        if config.get("print_config"):
            print_tree(config)
        with signals.noted(deadline_s=config["processes"]["deadline_s"]):
            method, why = start_method(config)
            stop.raise_if_stop_requested()
            return _Run(config, overrides=overrides or [], method=method, fallback=why, given=folder).carry_out()
    finally:
        logs.tear_down()


def start_method(config: dict[str, Any]) -> tuple[str, str | None]:
    """The start method of this run, and why it is not the one that was wished for."""
    return choose_start_method("spawn" if config["processes"]["inline"] else config["processes"]["start_method"])


@dataclass
class _Run:
    config: dict[str, Any]
    overrides: list[str]
    method: str
    fallback: str | None
    given: Path | None = None
    result: dict[str, Any] | None = None
    started: float = field(default_factory=time.time)

    def carry_out(self) -> tuple[Outcome, dict[str, Any] | None]:
        """Checks, runs, reports."""
        inline = self.config["processes"]["inline"]
        if not inline:
            self._check_in_child()
        folder = choose_run_folder(self.config, given=self.given)
        identity = Identity(role=Role.MAIN, run_dir=str(folder.layout.run_dir), attempt=folder.attempt)
        with _owned(folder):
            self._prepare(folder, identity)
            try:
                outcome = self._inline(identity) if inline else self._with_restarts(identity)
            except BaseException as error:  # a fault of main's own code; its record must not look killed
                end_subtree(identity.run_dir)
                self._finish(folder, outcome_of(error))
                raise
            outcome = self._finish(folder, outcome)
        report.print_end(outcome, self.result, layout=folder.layout, resume=self.config["resume"])
        return outcome, self.result

    def _check_in_child(self) -> None:
        """What needs torch to be checked is checked in one short-lived process, before the folder exists."""
        problems: list[str] = []
        child = start_child(check_config, self._handover(Identity(role=Role.TRIAL)), args=())
        Supervisor([child], on_message=lambda child, kind, data: problems.extend(data)).run()
        end_strays(child)
        stop.raise_if_stop_requested()
        if problems:
            raise ConfigError(*problems)
        if refusal := refusal_in(child.outcome):
            raise refusal
        if child.exit_code:
            raise ChildFailedError(f"the configuration could not be checked: {child.how_it_ended()}")

    def _prepare(self, folder: RunFolder, identity: Identity) -> None:
        set_identity(identity)
        share_identity(identity)
        logs.set_up_files(identity)
        process_registry.register(identity, parent_pid=os.getppid(), start_method=self.method)
        try:
            report.write_start(folder.layout, self.config, self.overrides)
        except OSError as error:
            if not folder.was_used():
                folder.remove()
            raise ConfigError(
                f"paths.runs_dir: {folder.layout.run_dir} cannot be written to ({error.strerror}); give another folder"
            ) from error
        if folder.found is None:
            log.info("run folder: %s", folder.layout.run_dir)
        else:
            log.info("goes on (attempt %d, found %s): %s", folder.attempt, folder.found, folder.layout.run_dir)

    def _handover(self, identity: Identity) -> Handover:
        return Handover(
            identity=identity,
            config=self.config,
            environ=process_environ(),
            start_method=self.method,
            threads=None,
            deadline_s=self.config["processes"]["deadline_s"],
        )

    def _with_restarts(self, identity: Identity) -> Outcome:
        restarts, wait_s = self.config["processes"]["max_restarts"], self.config["processes"]["restart_wait_s"]
        for attempt in range(identity.attempt, identity.attempt + restarts + 1):
            outcome = self._one_attempt(identity.child(role=Role.TRIAL, attempt=attempt))
            if not may_succeed_again(outcome) or stop.stop_request() is not None:
                break
            if attempt < identity.attempt + restarts:
                log.warning("%s; restarted from its last checkpoint in %g s", outcome.cause, wait_s)
                stop.sleep(wait_s)
                if (request := stop.stop_request()) is not None:
                    cause = f"{request.reason} before the restart after: {outcome.cause}"
                    return Outcome(status=Status.INTERRUPTED, exit_code=request.exit_code, cause=cause)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
                self.method, self.fallback = start_method(self.config)
        return outcome

    def _one_attempt(self, identity: Identity) -> Outcome:
        process_registry.set_state("supervising")
        assert identity.run_dir is not None
        with server_noted(identity, process_server.pid()):
            child = start_child(run_trial, self._handover(identity))
            limit_s = self.config["processes"]["stall_timeout_s"]
            watch = None if limit_s is None else StallWatch(identity.run_dir, limit_s=limit_s)
            supervisor = Supervisor([child], on_message=self._on_message, stall_watch=watch)
            supervisor.run()
        process_registry.set_state("closing")
        killed = end_subtree(identity.run_dir)
        end_strays(child)
        if killed:
            log.warning("did not end by themselves and were killed: %s", ", ".join(killed))
        if supervisor.server_lost:
            log.warning("the process server was killed, and every process with it")
        if supervisor.stalled:
            return Outcome(status=Status.CRASHED, exit_code=1, cause=supervisor.stalled)
        return outcome_of_trial(child)

    def _on_message(self, child: Child, kind: str, data: Any) -> None:
        if kind == "result":
            self.result = data

    def _inline(self, identity: Identity) -> Outcome:
        from project.training.trial import run_inline

        error: BaseException | None = None
        try:
            self.result = run_inline(self.config, identity)
        except (ProjectError, stop.StopRequested, SystemExit, KeyboardInterrupt) as raised:
            error = raised  # all others go on: the debugger, or the reader, wants the traceback where it happened
        return outcome_of(error)

    def _finish(self, folder: RunFolder, outcome: Outcome) -> Outcome:
        """Writes how it ended, and returns it: a run of which nothing is kept has failed."""
        refusal = None if folder.was_used() else refusal_in(outcome)
        if refusal is not None:
            folder.remove()
            log.info("it could not begin, so its folder is gone again")
            raise refusal
        process_registry.finish(outcome)
        facts = {
            "attempts": folder.attempt,
            "start_method": self.method,
            "fallback": self.fallback,
            "seconds": time.time() - self.started,
        }
        if folder.is_gone():
            return unwritten(folder, outcome)
        try:
            report.write_end(folder.layout, outcome, result=self.result, facts=facts)
        except OSError as error:
            return unwritten(folder, outcome, error)
        return outcome


@contextmanager
def _owned(folder: RunFolder) -> Iterator[None]:
    """This process is main of the run in `folder`, and afterwards what it was before."""
    with being_main(str(folder.layout.run_dir)):
        try:
            yield
        finally:
            folder.lock.release()
