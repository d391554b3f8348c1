"""Fixtures of the whole suite, and the guards: a test that leaves anything behind fails."""

import signal
import tempfile
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from project.common.processes import process_server
from tests.helpers import guards, parts, tree

pytest_plugins = ["pytester"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="one of N parts of the suite; tests.parallel runs them side by side")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("--part")
    if part is not None:
        try:
            kept = parts.chosen(items, part)
        except ValueError as error:
            raise pytest.UsageError(str(error)) from error
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept


@pytest.fixture(scope="session", autouse=True)
def _session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """State and cache folders of this session's own; one process server at most; orphans become ours."""
    tree.adopt_orphans()
    _hear_signals()
    resource_tracker.ensure_running()
    folder: Path = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield
        process_server.stop()


def _hear_signals() -> None:
    """A shell that starts the suite in the background, or nohup, has signals ignored; the tests want them heard."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest, _session: None) -> Iterator[None]:
    """Set up before and torn down after every other fixture of a test."""
    if _needs_server(request):
        process_server.start()
        process_server.wait_until_ready()
    before = guards.look()
    yield
    left = guards.leaks(before)
    if left:
        tree.kill_all({p for p in tree.descendants() if any(f"process {p.pid} " in text for text in left)})
        pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)


def _needs_server(request: pytest.FixtureRequest) -> bool:
    if "served" in request.fixturenames:
        return True
    parameters = getattr(getattr(request.node, "callspec", None), "params", {})
    return parameters.get("start_method") == "forkserver"


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough to be TMPDIR: sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def served() -> int:
    """Pid of the session's one process server, which serves."""
    pid = process_server.pid()
    assert pid is not None
    return pid


@pytest.fixture(params=["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def start_method(request: pytest.FixtureRequest) -> str:
    """Both ways to start processes; every guarantee holds under both."""
    method: str = request.param
    return method
