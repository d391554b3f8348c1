"""The timeline of a run, made from its process records: a Chrome trace that Perfetto and chrome://tracing open."""

from pathlib import Path
from typing import Any

from project.common.files.atomic import write_json
from project.common.files.layout import RunLayout
from project.common.process_registry import ProcessRecord, read_run


def trace_events(records: list[ProcessRecord]) -> list[dict[str, Any]]:
    """Trace events: a row per process, a bar per state; times in microseconds since the first process started."""
    if not records:
        return []
    origin = min(record.started for record in records)
    events: list[dict[str, Any]] = []
    for record in records:
        pid = record.key.pid
        events.append(
            {"name": "process_name", "ph": "M", "pid": pid, "tid": pid, "args": {"name": record.identity.label}}
        )
        for (state, begin), end in zip(record.history, _ends(record), strict=False):
            events.append(
                {
                    "name": state,
                    "ph": "X",
                    "pid": pid,
                    "tid": pid,
                    "ts": round((begin - origin) * 1e6),
                    "dur": round((end - begin) * 1e6),
                    "args": {"role": str(record.identity.role)},
                }
            )
    return events


def _ends(record: ProcessRecord) -> list[float]:
    """When each state ended. A killed process's last state lasts to its last sign of life; `ended` is no bar."""
    ends = [when for _, when in record.history[1:]]
    if record.history and record.history[-1][0] != "ended":
        last = record.history[-1][1]
        ends.append(max(last, (record.heartbeat or {}).get("time", last)))
    return ends


def write_timeline(run_dir: Path) -> None:
    """Writes `timeline.json` from the records in the run's folder."""
    write_json(RunLayout(run_dir).timeline, {"traceEvents": trace_events(read_run(run_dir)), "displayTimeUnit": "ms"})
