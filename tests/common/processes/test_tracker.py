"""The resource tracker may be killed: another takes over, and nobody hears of it."""

from tests.helpers import mains

LOST_TRACKER = """
import multiprocessing
from multiprocessing import resource_tracker
from project.common.processes import shm_cleanup
from pathlib import Path
report()
shm_cleanup.mark_as_own()
before = multiprocessing.Lock()
os.kill(resource_tracker._resource_tracker._pid, 9)
after = multiprocessing.Lock()
del before, after
resource_tracker._resource_tracker._stop()
print(sorted(path.name for path in Path("/dev/shm").glob(f"sem.project-{os.getpid()}-*")))
"""


def test_a_killed_resource_tracker_is_replaced_without_a_word_and_nothing_is_left() -> None:
    """The new one printed a traceback for each semaphore of before that was given back."""
    result = mains.run(LOST_TRACKER)

    assert result.stderr == ""
    assert result.stdout.splitlines()[1:] == ["[]"]
