"""The timeline of a run, made from its process records: a Chrome trace that Perfetto and chrome://tracing open."""

from pathlib import Path
from typing import Any

from project.common.files.atomic import atomic_file, write_json
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
        for (state, begin), end in zip(record.history, state_ends(record), strict=False):
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


def state_ends(record: ProcessRecord) -> list[float]:
    """When each state ended, in seconds since the epoch.

    A killed process's last state lasts to its last sign of life; `ended` is no bar.
    """
    ends = [when for _, when in record.history[1:]]
    if record.history and record.history[-1][0] != "ended":
        ends.append(record.last_sign)
    return ends


def write_timeline(run_dir: Path) -> tuple[Path, Path]:
    """Writes `timeline.json` and `timeline.svg` from the records in the run's folder; returns their paths."""
    from project.common.processes.timeline_svg import timeline_svg

    layout, records = RunLayout(run_dir), read_run(run_dir)
    write_json(layout.timeline, {"traceEvents": trace_events(records), "displayTimeUnit": "ms"})
    with atomic_file(layout.timeline_picture, durable=False) as file:
        file.write(timeline_svg(records, title=str(run_dir)))
    return layout.timeline, layout.timeline_picture
