"""Private parts of the standard library are in one place, and one clear error tells when they are gone."""

import os
import threading
from multiprocessing import forkserver, process
from pathlib import Path

import pytest

from project.common.errors import ProcessServerError
from project.common.processes import linux, mp_internals, process_server
from project.common.processes.managed_process import ManagedProcess
from tests.helpers.mains import run_main
from tests.helpers.processes import handover_for
from tests.helpers.tree import ROOT
from tests.helpers.waiting import until


@pytest.mark.parametrize("name", ["_forkserver_address", "_forkserver_alive_fd", "_forkserver_pid", "_inherited_fds"])
def test_a_missing_attribute_of_the_server_is_one_clear_error(name: str) -> None:
    kept = getattr(forkserver._forkserver, name)
    delattr(forkserver._forkserver, name)
    try:
        with pytest.raises(ProcessServerError, match=f"lacks {name}; use start_method=spawn"):
            mp_internals.check_internals()
        assert name in (process_server.is_possible() or "")
    finally:
        setattr(forkserver._forkserver, name, kept)


@pytest.mark.parametrize("name", ["main", "ensure_running", "connect_to_new_process"])
def test_a_missing_function_is_one_clear_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(forkserver, name)

    with pytest.raises(ProcessServerError, match=f"lacks {name}; use start_method=spawn"):
        mp_internals.check_internals()


def test_nothing_else_of_ours_touches_private_parts() -> None:
    private = ("forkserver._", "()._config", "spawnv_passfds", "_resource_tracker")
    users = [p for p in (ROOT / "project").rglob("*.py") if any(word in p.read_text() for word in private)]

    assert [path.name for path in users] == ["mp_internals.py"]


def test_a_server_uses_the_address_for_its_children_and_starts_no_other(served: int) -> None:
    forkserver.ensure_running()

    server = vars(forkserver._forkserver)
    assert server["_forkserver_pid"] == served
    assert os.path.exists(server["_forkserver_address"])


def test_two_threads_may_wait_for_one_child(start_method: str) -> None:
    """Of two at once the standard library told one of them 255, or that it still runs."""
    child = ManagedProcess(os._exit, handover=handover_for(start_method), args=(3,))
    child.start()
    codes: list[int | None] = []

    def wait() -> None:
        child.join(20)
        codes.append(child.exitcode)

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    child.close()

    assert codes == [3, 3, 3, 3]


def test_sockets_lie_in_a_folder_that_is_known_to_be_ours() -> None:
    mp_internals.use_tree_folder()
    folder = Path(process.current_process()._config["tempdir"])  # type: ignore[attr-defined]

    assert folder.name.startswith("project-tree-")
    assert (folder / "owner.json").exists()
    assert folder.stat().st_mode & 0o077 == 0, "nobody else may connect"


def test_our_data_is_handed_on_and_can_be_left_out() -> None:
    mp_internals.hand_to_children({"a": 1})
    config = dict(process.current_process()._config)  # type: ignore[attr-defined]
    handed = mp_internals.handed_by_parent()
    mp_internals.hand_to_children(None)

    assert handed == {"a": 1}
    assert handed in config.values()
    assert handed not in mp_internals.without_inheritance(config).values()


def test_a_closed_terminal_does_not_end_the_resource_tracker_before_its_tree() -> None:
    """SIGHUP goes to the whole group; a tracker that is started anew complains of every semaphore that it never saw."""
    lines = run_main(
        """
        import signal
        from multiprocessing import resource_tracker
        tracker = resource_tracker._resource_tracker._pid
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            os.kill(tracker, number)
        time.sleep(0.5)
        print(os.waitpid(tracker, os.WNOHANG))
        process_server.stop()
        """
    )

    assert lines == ["(0, 0)"]


def test_a_stopped_resource_tracker_ends_with_its_main() -> None:
    lines = run_main(
        """
        import signal
        from multiprocessing import resource_tracker
        print(resource_tracker._resource_tracker._pid)
        os.kill(resource_tracker._resource_tracker._pid, signal.SIGSTOP)
        process_server.stop()
        """
    )

    until(lambda: linux.process_start_time(int(lines[0])) is None, 10, what="the end of the tracker")
