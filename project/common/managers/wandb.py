"""Weights & Biases: one run per trial, opened in rank 0 at the first value, ended with the exit code of the trial."""

import logging
import netrc
import os
import secrets
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from project.common.errors import ConfigError
from project.common.files.secrets import mask_config
from project.common.managers.base import BaseProcessManager, Health
from project.common.processes.handover import handed_config, own_sweep
from project.common.processes.identity import Role
from project.common.wandb_process import arguments_masked, kill_services, remove_scratch_at_end

if TYPE_CHECKING:
    from project.common.managers.directory import DirectoryManager
    from project.common.managers.metrics import MetricsManager

log = logging.getLogger(__name__)

TEAR_DOWN_S = 5.0  # for W&B's own process to end, after the upload
_ANSWER_S = TEAR_DOWN_S * 0.3  # for the service's answer, then for its end, then for who waits for it
MODES = ("auto", "online", "offline", "disabled")


class WandbManager(BaseProcessManager):
    """Passes values on to W&B. In other ranks, and when disabled, every call does nothing and wandb is not imported.

    Args:
        mode: `auto` (online with a key, else offline), `online`, `offline` (`wandb sync` uploads later) or `disabled`.
        project: W&B project.
        entity: User or team; None takes the account's own.
        group: Runs shown together; None takes the study's name in a sweep.
        name: Shown name; None takes the run folder's.
        tags: Of the run.
        notes: Free text on it.
        close_timeout_s: Longest wait for an upload at the end; the rest stays in the run folder.
    """

    name = "wandb"
    roles = frozenset({Role.RANK})

    def __init__(
        self,
        *,
        directory: "DirectoryManager",
        metrics: "MetricsManager",
        mode: str = "auto",
        project: str,
        entity: str | None = None,
        group: str | None = None,
        name: str | None = None,
        tags: Sequence[str] = (),
        notes: str | None = None,
        close_timeout_s: float = 60.0,
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"managers.wandb.mode: {mode!r} is unknown; use one of {', '.join(MODES)}")
        if mode == "online" and not has_api_key():
            raise ConfigError(
                "managers.wandb.mode: online, but there is no API key; set WANDB_API_KEY or run `wandb login`, "
                "or choose managers/wandb=offline"
            )
        self._directory = directory
        self._metrics = metrics
        self._mode = mode
        self._is_open_here = mode != "disabled" and self.identity.rank in {None, 0}
        self._settings: dict[str, Any] = {
            "project": project,
            "entity": entity,
            "group": group,
            "name": name,
            "tags": list(tags),
            "notes": notes,
        }
        self._upload_timeout_s = close_timeout_s
        self.close_timeout_s = close_timeout_s + TEAR_DOWN_S
        self._run: Any = None
        self._from_step = 0
        self._hooks: tuple[Any, Any] | None = None

    @property
    def mode(self) -> str:
        """What `auto` comes to: `online`, `offline` or `disabled`."""
        if self._mode == "auto":
            return "online" if has_api_key() else "offline"
        return self._mode

    @property
    def run(self) -> Any:
        """W&B's run, opened now if it is not; a stand-in that takes any call in other ranks and when disabled."""
        if not self._is_open_here:
            return _NoRun()
        if self._run is None:
            self._run = self._open()
        return self._run

    def check(self) -> Health:
        """What is done with values."""
        return Health(ok=True, reason=self.mode if self._is_open_here else "nothing is logged here")

    def log(self, values: Mapping[str, Any], *, step: int) -> None:
        """Passes values on. Those of steps that an earlier attempt had logged are left out: W&B's steps only grow."""
        run = self.run
        if not self._is_open_here or step < self._from_step:
            return
        try:
            run.log(dict(values), step=step)
        except Exception as error:  # noqa: BLE001 - training does not depend on W&B, nor on its service process
            log.warning("W&B run %s goes without the rest, its service is gone: %s", run.id, error)
            self._is_open_here = False

    def finish(self, exit_code: int = 0, *, state: str | None = None) -> None:
        """Ends the run with the exit code of the trial, and W&B's service process; may be called again.

        Args:
            exit_code: 0 shows the run as finished.
            state: Kept in the run's summary, such as `pruned`.
        """
        run, self._run = self._run, None
        if run is None:
            return
        summary = dict(self._metrics.final) | ({"state": state} if state else {})
        ending = threading.Thread(target=self._end, args=(run, exit_code, summary), name="wandb-finish", daemon=True)
        ending.start()
        ending.join(self._upload_timeout_s + _ANSWER_S)
        if ending.is_alive():
            log.warning("W&B run %s could not be closed: its service does not answer and was killed", run.id)
        kill_services(_ANSWER_S)
        ending.join(_ANSWER_S)
        self._restore_hooks()
        self._open_marker.unlink(missing_ok=True)

    def _end(self, run: Any, exit_code: int, summary: dict[str, Any]) -> None:
        """How the training ended matters more than whether this works; the values are in the folder."""
        import wandb

        try:
            run.summary.update(summary)
            run.finish(exit_code=exit_code)
        except Exception as error:  # noqa: BLE001 - whatever a lost connection raises
            log.warning("W&B run %s could not be closed: %s", run.id, str(error) or type(error).__name__)
        try:
            wandb.teardown(exit_code=exit_code)  # also after a failure, or W&B tries again as the process exits
        except Exception as error:  # noqa: BLE001 - likewise
            log.debug("W&B: %s", error)

    def close(self) -> None:
        """Ends the run as a success, unless `finish` said otherwise before."""
        self.finish(0)

    @property
    def _folder(self) -> Path:
        return self._directory.layout.wandb_dir

    @property
    def _open_marker(self) -> Path:
        return self._directory.layout.wandb_open

    def _open(self) -> Any:
        self._folder.mkdir(exist_ok=True)  # not the run's, which may have been removed
        if self._open_marker.exists():
            log.warning("W&B run %s was not closed by an earlier attempt; it is continued", self._run_id())
        self._open_marker.touch()
        self._hooks = (sys.excepthook, sys.exit)
        try:
            run = self._init()
            self._from_step = getattr(run, "step", 0)  # asked once: each time waits for the service
            return run
        except Exception as error:
            self._restore_hooks()
            self._open_marker.unlink(missing_ok=True)
            if self._mode == "online":
                raise
            # Training does not depend on W&B: the history and the CSV have everything.
            log.warning("W&B is left out, it could not be opened: %s", str(error).strip().splitlines()[0])
            self._is_open_here = False
            return _NoRun()

    def _init(self) -> Any:
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        remove_scratch_at_end()
        settings = wandb.Settings(
            console="off", disable_git=True, disable_code=True, x_disable_stats=self.mode == "offline", silent=True,
            finish_timeout=self._upload_timeout_s,
        )  # fmt: skip
        with arguments_masked():
            run = self._start(wandb, settings)
        log.info("W&B run %s (%s)%s", run.id, self.mode, f": {run.url}" if run.url else "")
        return run

    def _start(self, wandb: Any, settings: Any) -> Any:
        return wandb.init(
            **mask_config(
                self._settings | {"name": self._settings["name"] or self._default_name(), "group": self._group()}
            ),
            id=self._run_id(),
            resume="allow" if self.mode == "online" else None,
            mode=self.mode,  # type: ignore[arg-type]
            dir=str(self._directory.run_dir),
            config=plain(mask_config((handed_config() or {}) | self._of_sweep())),
            settings=settings,
            reinit="create_new",
        )

    def _group(self) -> str | None:
        sweep = own_sweep()
        return self._settings["group"] or (sweep.study if sweep is not None else None)

    def _of_sweep(self) -> dict[str, Any]:
        """What only a trial of a sweep has in its configuration there."""
        sweep = own_sweep()
        if sweep is None:
            return {}
        return {"sweep": {"study": sweep.study, "trial": self.identity.trial, "params": sweep.params}}

    def _default_name(self) -> str:
        folder = self._directory.run_dir
        return f"{folder.parent.name}/{folder.name}"

    def _run_id(self) -> str:
        """The same for every attempt in this folder."""
        file = self._directory.layout.wandb_run_id
        if not file.exists():
            file.write_text(secrets.token_hex(5))
        return file.read_text()

    def _restore_hooks(self) -> None:
        """W&B replaces `sys.exit` and `sys.excepthook` and never gives them back."""
        if self._hooks is not None:
            sys.excepthook, sys.exit = self._hooks
            self._hooks = None


class _NoRun:
    """Stands in where there is no run: takes every call, says nothing."""

    step = 0

    def __getattr__(self, attribute: str) -> Any:
        return _NoRun() if not attribute.startswith("__") else object.__getattribute__(self, attribute)

    def __call__(self, *_args: Any, **_kwargs: Any) -> "_NoRun":
        return self


def has_api_key() -> bool:
    """Whether W&B could log in: looks where W&B does, without importing it."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").partition("://")[2].partition("/")[0]
    file = Path(os.environ.get("NETRC") or Path("~/.netrc").expanduser())
    try:
        return netrc.netrc(str(file)).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError, RuntimeError):
        return False


def plain(value: Any) -> Any:
    """JSON's types only: paths and the like become text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
