"""What simple methods reach on the very rows that the model is trained and tested on; fitted once per data."""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from project.common.files.atomic import write_json
from project.common.managers import get_data_manager, get_directory_manager
from project.common.process_registry import heartbeat
from project.common.processes.stop import raise_if_stop_requested
from project.common.whitelist import instantiate

log = logging.getLogger(__name__)


def baseline_metrics(node: Mapping[str, Any] | None, *, step: int) -> dict[str, float]:
    """Metrics `<baseline>/<split>/<metric>`, from the cache when these rows were measured before; none without `node`.

    Args:
        node: A function that takes `splits`, lists of rows, and `report`. A row has `label` and `text` or `features`;
            without labels it has `input_ids`.
        step: The training's last step, for the signs of life meanwhile.
    """
    data = get_data_manager()
    if node is None:
        return {}
    key = hashlib.sha256(json.dumps([data.fingerprint, node], sort_keys=True).encode()).hexdigest()[:16]

    def build(path: Path) -> None:
        log.info("fitting the baselines, once for this data")
        write_json(path, instantiate(node, _partial_=True)(splits=_splits(), report=report))

    def report(number: int, metrics: Mapping[str, float]) -> None:
        heartbeat(step)
        raise_if_stop_requested()

    path = get_directory_manager().create_once(f"baselines/{key}.json", build)
    found: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _splits() -> dict[str, list[dict[str, Any]]]:
    data = get_data_manager()
    return {split: list(_rows(split)) for split in data.splits}


def _rows(split: str) -> Iterator[dict[str, Any]]:
    data = get_data_manager()
    names = data.labels
    if not names:
        stored = data.rows(split)
        yield from ({"input_ids": stored[number]["input_ids"]} for number in range(len(stored)))
        return
    dataset = data.dataset(split)
    name = "text" if "text" in dataset.column_names else "features"
    labels = data.rows(split).column("label")
    yield from ({name: value, "label": names[label]} for value, label in zip(dataset[name], labels, strict=True))
