"""Hydra's own conformance suites, on our launcher."""

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.test_utils.launcher_common_tests import (
    BatchedSweeperTestSuite,
    IntegrationTestSuite,
    LauncherTestSuite,
)

from project.sweeps import plugins
from tests.helpers.distribution import describe_distribution

pytestmark = pytest.mark.slow

NAME = plugins.PACKAGE
Plugins.instance()  # before the first test, whose singletons are restored for all others


@pytest.fixture(autouse=True)
def registered(hydra_restore_singletons: None) -> None:
    """Each test of the suite restores Hydra's singletons."""
    plugins.register()


def test_hydra_finds_the_launcher() -> None:
    assert plugins.TrialLauncher in Plugins.instance().discover(Launcher)


@pytest.mark.parametrize(("launcher_name", "overrides"), [(NAME, [])])
class TestTrialLauncher(LauncherTestSuite):
    """Runs the suite of every launcher."""


@pytest.mark.parametrize(("launcher_name", "overrides"), [(NAME, ["hydra.sweeper.max_batch_size=2"])])
class TestBatchedSweeper(BatchedSweeperTestSuite):
    """Runs the suite of sweepers that launch in batches."""


LAUNCHER = {"defaults": [{"override hydra/launcher": NAME}]}


@pytest.fixture(autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite's applications are processes that find the plugin as an installed one."""
    monkeypatch.setenv("PYTHONPATH", describe_distribution(tmp_path_factory.mktemp("installed")))


@pytest.mark.parametrize(("task_launcher_cfg", "extra_flags"), [(LAUNCHER, ["-m"])])
class TestIntegration(IntegrationTestSuite):
    """Runs whole applications."""
