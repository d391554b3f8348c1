"""What a run's folder says of the run. It may be anybody's: it is read as data, and odd content is left out."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from project.common.errors import ConfigError
from project.common.files.layout import RunLayout
from project.common.files.secrets import MASK, is_secret_name
from project.common.managers.metrics import read_history
from project.common.process_registry import ProcessRecord, read_run
from project.common.processes.identity import Role
from project.common.processes.timeline_svg import timeline_svg

_MOST_BYTES = 2_000_000  # of a file that is shown as text
_LONGEST_SAMPLE = 20_000
_SETTING = re.compile(r"^(?P<before>[ \t-]*['\"]?(?P<key>[\w./@+-]+)['\"]?:[ \t]+)\S.*$", re.MULTILINE)
_NOTED = re.compile(r"^\S+ \S+ (WARNING|ERROR|CRITICAL)\b.*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What is known of a run; empty where nothing is.

    Args:
        status: As in `outcome.json`; `running` or `killed` where there is none.
        config_text: As it lies there, secrets masked.
        rows: Of the final table: what was trained, then the baselines.
        history: A record per logged step.
        began: When its first process started, as text.
        picture: Its timeline, drawn anew: a drawing that lies there could be anything.
        noted: The last warnings and errors of the log.
    """

    layout: RunLayout
    status: str
    config: Mapping[str, Any]
    config_text: str
    overrides: list[str]
    outcome: Mapping[str, Any]
    rows: list[dict[str, Any]]
    history: list[dict[str, Any]]
    began: str
    picture: str
    sample: str
    noted: list[str]

    @property
    def name(self) -> str:
        """The run's name, else its folder's."""
        return str(self.config.get("name") or self.layout.run_dir.absolute().name)

    @property
    def objective(self) -> Mapping[str, Any]:
        """`metric` and `mode` of what decided on the best checkpoint, where they are known."""
        found = self.config.get("objective")
        return found if isinstance(found, Mapping) else {}


def is_run(folder: Path) -> bool:
    """Whether a run has, or had, this folder."""
    layout = RunLayout(folder)
    return any(path.is_file() for path in (layout.config, layout.outcome, layout.fingerprint))


def read_facts(run_dir: Path) -> RunFacts:
    """Reads a run's folder; nothing in it is built or called.

    Raises:
        ConfigError: It is no run's folder.
    """
    if not is_run(run_dir):
        raise ConfigError(f"{run_dir}: is no run's folder; name one such as runs/<name>/<time>-<id>")
    layout = RunLayout(run_dir)
    outcome, (began, picture, status) = _object(layout.outcome), _processes(run_dir)
    config_text = _text(layout.config)
    config, overrides = _yaml(config_text), _yaml(_text(layout.overrides))
    result = outcome.get("result")
    return RunFacts(
        layout=layout,
        status=str(outcome.get("status") or status),
        config=config if isinstance(config, dict) else {},
        config_text=_SETTING.sub(_mask_setting, config_text),
        overrides=[str(it) for it in overrides] if isinstance(overrides, list) else [],
        outcome=outcome,
        rows=_rows(result.get("rows") if isinstance(result, dict) else None) or _rows([_object(layout.metrics)]),
        history=read_history(layout.metrics_history),
        began=began,
        picture=picture,
        sample=_text(layout.sample)[:_LONGEST_SAMPLE],
        noted=[match.group() for match in _NOTED.finditer(_text(layout.run_log, from_end=True))][-20:],
    )


def _processes(run_dir: Path) -> tuple[str, str, str]:
    """When the run began, its timeline, and whether it is alive."""
    try:
        records = read_run(run_dir)
        if not records:
            return "", "", "killed"
        began = f"{datetime.fromtimestamp(min(record.started for record in records)):%Y-%m-%d %H:%M:%S}"
        return began, timeline_svg(records, title=""), _status(records)
    except (TypeError, ValueError, LookupError, ArithmeticError, OSError):  # records of somebody else's making
        return "", "", "killed"


def _status(records: list[ProcessRecord]) -> str:
    mains = [record for record in records if record.identity.role is Role.MAIN]
    return "running" if any(record.key.is_alive() for record in mains) else "killed"


def _rows(found: Any) -> list[dict[str, Any]]:
    rows = [row for row in found if isinstance(row, dict) and row] if isinstance(found, list) else []
    return [{str(key): value for key, value in row.items()} for row in rows]


def _text(path: Path, *, from_end: bool = False) -> str:
    try:
        with path.open("rb") as file:
            if from_end:
                file.seek(max(0, path.stat().st_size - _MOST_BYTES))
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _object(path: Path) -> dict[str, Any]:
    found = _parsed(_text(path))
    return found if isinstance(found, dict) else {}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _mask_setting(match: re.Match[str]) -> str:
    return match["before"] + MASK if is_secret_name(match["key"]) else match.group()
