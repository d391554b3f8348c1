"""The W&B manager: one run, in rank 0, opened late, closed with the right exit code, and nothing without an account."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from project.common.errors import ConfigError
from project.common.managers.wandb import WandbManager, has_api_key, plain
from project.common.processes.identity import Identity, Role, set_identity
from tests.helpers.tree import ROOT, is_alive
from tests.helpers.waiting import until
from tests.helpers.wandb_runs import exit_codes, in_rank, manager, stored


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "NETRC", "WANDB_BASE_URL", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)


def log_and_finish(wandb: WandbManager) -> None:
    for step in range(1, 4):
        wandb.log({"val/acc": step / 10}, step=step)
    wandb.finish(143)
    wandb.finish(0)
    wandb.close()
    assert not services_of(os.getpid())
    assert sys.exit.__module__ == "sys"


def log_and_close(wandb: WandbManager) -> None:
    assert "wandb" not in sys.modules, "opened before the first value"
    wandb.log({"val/acc": 0.5}, step=1)
    wandb.close()


def log_and_die(wandb: WandbManager) -> None:
    wandb.log({"val/acc": 0.5}, step=1)
    (wandb._folder / "service").write_text(str(services_of(os.getpid())[0].pid))
    os.kill(os.getpid(), signal.SIGKILL)


def log_beside_a_lost_service(number: int) -> Callable[[WandbManager], None]:
    def child(wandb: WandbManager) -> None:
        wandb.log({"val/acc": 0.5}, step=1)
        os.kill(services_of(os.getpid())[0].pid, number)
        time.sleep(0.5)
        for step in range(2, 20):
            wandb.log({"val/acc": 0.5}, step=step)
        wandb.finish(0)
        assert not services_of(os.getpid())
        assert not list(Path(tempfile.gettempdir()).glob(f"wandb-{os.getpid()}-*"))

    return child


def exit_beside_a_lost_service(folder: str) -> None:
    """In a process of its own that exits as a spawned one does, with all that is registered for it."""
    set_identity(Identity(role=Role.RANK, rank=0, world_size=1, run_dir=folder))
    wandb = manager(Path(folder), close_timeout_s=2.0)
    wandb.log({"val/acc": 0.5}, step=1)
    os.kill(services_of(os.getpid())[0].pid, signal.SIGSTOP)
    wandb.finish(0)


def log_nothing(wandb: WandbManager) -> None:
    wandb.log({"val/acc": 0.5}, step=1)
    wandb.run.config.update({"any": "call"}, allow_val_change=True)
    wandb.finish(0)
    assert "wandb" not in sys.modules


def services_of(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children(recursive=True)
    return [child for child in children if "wandb-core" in child.name()]


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and is_alive(psutil.Process(pid))


@pytest.mark.case("71")
def test_the_exit_code_and_the_last_step_are_stored(tmp_path: Path) -> None:
    assert in_rank(log_and_finish, tmp_path / "run") == 0

    [records] = stored(tmp_path / "run")
    steps = [record.history.step.num for record in records if record.WhichOneof("record_type") == "history"]
    assert exit_codes(tmp_path / "run") == [143]
    assert steps == [1, 2, 3]


def test_closing_without_a_verdict_is_a_success(tmp_path: Path) -> None:
    assert in_rank(log_and_close, tmp_path / "run") == 0

    assert exit_codes(tmp_path / "run") == [0]


def test_no_folder_stays_among_the_temporary_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B's two stayed after every run: they are removed by `atexit`, which started processes do not run."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))

    assert in_rank(log_and_close, tmp_path / "run") == 0

    assert not list((tmp_path / "tmp").iterdir())


def test_another_attempt_has_the_same_id_and_says_what_was_left_open(tmp_path: Path) -> None:
    assert in_rank(log_and_die, tmp_path / "run") == -signal.SIGKILL
    service = int((tmp_path / "run" / "wandb" / "service").read_text())
    until(lambda: not is_running(service), 5, what="W&B's service ends after its process was killed")

    assert in_rank(log_and_close, tmp_path / "run") == 0

    ids = {path.name.rpartition("-")[2] for path in (tmp_path / "run" / "wandb").glob("offline-run-*")}
    assert len(ids) == 1
    assert exit_codes(tmp_path / "run")[-1] == 0
    assert not (tmp_path / "run" / "wandb" / "open").exists()


@pytest.mark.parametrize("options", [{"rank": 1}, {"mode": "disabled"}], ids=["rank 1", "disabled"])
def test_elsewhere_nothing_is_opened_and_every_call_is_taken(tmp_path: Path, options: dict[str, object]) -> None:
    assert in_rank(log_nothing, tmp_path / "run", **options) == 0  # type: ignore[arg-type]

    assert not (tmp_path / "run" / "wandb").exists()


def test_without_a_key_auto_is_offline(tmp_path: Path) -> None:
    assert manager(tmp_path / "run", mode="auto").mode == "offline"


def test_with_a_key_auto_is_online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)

    assert manager(tmp_path / "run", mode="auto").mode == "online"


def test_a_key_of_wandb_login_is_found(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text(f"machine api.wandb.ai\n  login user\n  password {'k' * 40}\n")
    (tmp_path / ".netrc").chmod(0o600)

    assert has_api_key()


def test_online_without_a_key_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"managers\.wandb\.mode: online, but there is no API key.*WANDB_API_KEY"):
        manager(tmp_path / "run", mode="online")


def test_an_unknown_mode_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'on' is unknown; use one of auto, online, offline, disabled"):
        manager(tmp_path / "run", mode="on")


def test_a_configuration_becomes_what_json_knows() -> None:
    config = {"a": None, "b": Path("x/y"), 3: (1, [2.5]), "missing": "???"}

    assert plain(config) == {"a": None, "b": "x/y", "3": [1, [2.5]], "missing": "???"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda number: number.name)
def test_training_goes_on_without_a_service_that_was_killed_or_hangs(tmp_path: Path, number: int) -> None:
    """A killed service ended the run, a stopped one held it for ever; its socket's folder stayed."""
    began = time.monotonic()

    assert in_rank(log_beside_a_lost_service(number), tmp_path / "run", close_timeout_s=2.0) == 0
    assert time.monotonic() - began < 30


def test_a_lost_service_is_not_asked_again_as_the_process_exits(tmp_path: Path) -> None:
    """W&B's own hook at the exit failed with a traceback on the terminal, under spawn."""
    (tmp_path / "run").mkdir()
    code = f"from {__name__} import exit_beside_a_lost_service as child; child({str(tmp_path / 'run')!r})"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
