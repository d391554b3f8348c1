"""How a run ended, as main sees it."""

from dataclasses import replace

from project.common.errors import DivergedError
from project.common.files.run_folder import RunFolder
from project.common.process_registry import folder_is_gone
from project.common.processes import stop
from project.common.processes.child import Child
from project.common.processes.outcome import Outcome, Status, refusal_in


def unwritten(folder: RunFolder, outcome: Outcome, error: OSError | None = None) -> Outcome:
    """The outcome of a run whose folder is gone, or does not take it any more because of `error`."""
    run_dir = folder.layout.run_dir
    if error is None or folder.is_gone():
        cause = str(folder_is_gone(run_dir))
    else:
        before = f"; before that: {outcome.cause}" if outcome.cause else ""
        cause = f"{run_dir}: how the run ended could not be written there ({error.strerror or error}){before}"
    if outcome.status is Status.INTERRUPTED:
        return replace(outcome, cause=f"{outcome.cause}; {cause}")
    return Outcome(status=Status.CRASHED, exit_code=1, cause=cause)


def may_succeed_again(outcome: Outcome) -> bool:
    """Whether the same may go well another time: what was refused will not, and a training goes on exactly."""
    return (
        outcome.status is Status.CRASHED and refusal_in(outcome) is None and outcome.exception != DivergedError.__name__
    )


def outcome_of_trial(child: Child) -> Outcome:
    """The run's outcome, from its trial's and what was asked of main."""
    request = stop.stop_request()
    if child.exit_code == 0:
        return Outcome(status=Status.COMPLETED, exit_code=0)
    if request is not None:
        cause = child.cause and f"{request.reason}; {child.cause}"
        return Outcome(status=Status.INTERRUPTED, exit_code=request.exit_code, cause=cause or request.reason)
    outcome = child.outcome
    if outcome is None:
        return Outcome(status=Status.CRASHED, exit_code=1, cause=child.how_it_ended())
    return Outcome(
        status=outcome.status,
        exit_code=outcome.exit_code if outcome.status in (Status.INTERRUPTED, Status.REFUSED) else 1,
        cause=outcome.cause,
        exception=outcome.exception,
        traceback=outcome.traceback,
    )
