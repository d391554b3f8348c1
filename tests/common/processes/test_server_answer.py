"""Starting a process ends in a moment or in an error, whatever state the server is in."""

import pytest

from tests.helpers import mains

STOPPED_SERVER = """
import signal
from project.common.processes import server_answer, stop
from tests.helpers.processes import handover_for
from project.common.processes.child import start_child
report()
os.kill(process_server.pid(), signal.SIGSTOP)
server_answer.START_LIMIT_S = {limit_s}
if {is_stopping}:
    stop.request_stop(stop.StopRequest(reason="SIGINT", exit_code=130, deadline=time.monotonic() + 1.5))
began = time.monotonic()
try:
    start_child(time.sleep, handover_for("forkserver"), args=(1,))
except ProcessServerError as error:
    print(error)
print(time.monotonic() - began < 20)
"""


@pytest.mark.parametrize(("limit_s", "is_stopping"), [(0.5, False), (600, True)])
def test_a_server_that_does_not_answer_is_killed_by_a_deadline(limit_s: float, is_stopping: bool) -> None:
    """A stopped server was waited for without end."""
    result = mains.run(STOPPED_SERVER.format(limit_s=limit_s, is_stopping=is_stopping))

    assert result.stdout.splitlines()[1:] == [
        "the process server has ended or was killed, so trial could not be started",
        "True",
    ]
    assert result.stderr.count("did not answer in time and was killed") == 1
