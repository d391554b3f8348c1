"""Tiny trainings in real processes, without the main process above them."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback

from project.common.files.checkpoint_file import load_checkpoint_file
from project.common.files.layout import RunLayout
from project.common.managers.metrics import read_history
from project.common.processes import parent_link, stop
from project.common.processes.child import Child, start_child
from project.common.processes.handover import Handover, own_handover
from project.common.processes.identity import Identity, Role
from project.common.processes.managed_process import ManagedProcess
from project.common.processes.supervision import end_subtree
from project.training.speed import NAMES
from tests.helpers import probe

ROOT = Path(__file__).resolve().parents[2]
LABELS = ("aa", "bb", "cc")
TINY = (
    "task.baselines=null",
    "task.model.width=32",
    "task.model.n_layers=1",
    "task.tokenizer.vocab_size=60",
    "task.tokenizer.min_frequency=1",
    "task.data.columns.group=null",
    "task.data.split=null",
    "task.model.dropout=0.3",
    "trainer.max_epochs=3",
    "trainer.accelerator=cpu",
    "trainer.log_every_n_steps=2",
    "loader.batch_size=4",
    "managers/wandb=disabled",
    "managers.directory.min_free_mb=0",
    "name=tiny",
    "callbacks.checkpoint.every_s=null",
)


def write_data(folder: Path, *, train: int = 34, val: int = 11, test: int = 7) -> dict[str, str]:
    """Files of rows whose label shows in their letters."""
    files = {}
    for split, n_rows in {"train": train, "val": val, "test": test}.items():
        path = folder / f"{split}.jsonl"
        rows = [
            {"text": f"{LABELS[i % 3] * (1 + i % 4)} {split} {i * 7 % 11}", "label": LABELS[i % 3]}
            for i in range(n_rows)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        files[split] = str(path)
    return files


def with_task(overrides: Sequence[str]) -> list[str]:
    """Adds the task that the framework's tests train, whatever a project starts from, unless another one is named."""
    is_named = any(override.startswith(("task=", "+experiment=", "experiment=")) for override in overrides)
    return [*([] if is_named else ["task=language_id"]), *overrides]


def compose(*overrides: str) -> dict[str, Any]:
    """The repository's configuration, resolved and plain."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(ROOT / "conf")):
        config = OmegaConf.to_container(hydra_compose("config", overrides=with_task(overrides)), resolve=True)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def tiny_config(folder: Path, *overrides: str, **sizes: int) -> dict[str, Any]:
    """A training of a second on data in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = ",".join(f"{split}:'{path}'" for split, path in write_data(folder, **sizes).items())
    places = (f"paths.runs_dir={folder}/runs", f"paths.cache_dir={folder}/cache", f"task.data.files={{{files}}}")
    return compose(*TINY, *places, *overrides)


class ProbeCallback(Callback):
    """Lets the environment's `PROBE` act at a hook of training.

    Args:
        at: `batch_start`, `batch_end`, `validation` or `epoch_end`; the step is the trainer's global step.
    """

    def __init__(self, *, at: str) -> None:
        self._at = at

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._fire("batch_start", trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._fire("batch_end", trainer)

    def on_validation_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        self._fire("validation", trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._fire("epoch_end", trainer)

    def _fire(self, place: str, trainer: Any) -> None:
        if place == self._at:
            if os.environ.get("PROBE", "").endswith("do=stop"):
                _stop_at(trainer.global_step)
            else:
                probe.fire(step=trainer.global_step)


def _stop_at(step: int) -> None:
    if f"step={step}," in os.environ["PROBE"]:
        stop.request_stop(stop.StopRequest(reason="test", exit_code=143, deadline=time.monotonic() + 60))


def history(layout: RunLayout) -> list[dict[str, Any]]:
    """A run's history without what clocks and memory say, which no two runs share."""
    lines = read_history(layout.metrics_history)
    return [{key: value for key, value in line.items() if key not in {"time", *NAMES}} for line in lines]


def with_probe(config: dict[str, Any], at: str) -> dict[str, Any]:
    """The configuration with a probe at a hook."""
    node = {"_target_": f"{__name__}.ProbeCallback", "at": at}
    return config | {"callbacks": config["callbacks"] | {"probe": node}}


def rank_entry() -> None:
    """A rank below the test; rank 0 sends its record up."""
    from project.training.rank import run_rank

    handover = own_handover()
    assert handover is not None
    record = run_rank(handover.config)
    parent_link.send("result", record)


@dataclass
class Run:
    """How a training ended: rank 0's record, every rank's exit code, and the folder."""

    records: list[dict[str, Any] | None]
    exit_codes: list[int | None]
    causes: list[str]
    layout: RunLayout

    @property
    def record(self) -> dict[str, Any]:
        """Rank 0's record."""
        assert self.records[0] is not None, (self.exit_codes, self.causes, self.log)
        return self.records[0]

    @property
    def log(self) -> str:
        """The run's log."""
        return self.layout.run_log.read_text() if self.layout.run_log.exists() else ""

    def history(self) -> list[dict[str, Any]]:
        """The history without what clocks and memory say."""
        return history(self.layout)

    def checkpoint(self, name: str = "last") -> dict[str, Any]:
        """Content of a checkpoint."""
        return load_checkpoint_file(self.layout.checkpoint(name))


def train(
    config: dict[str, Any] | list[dict[str, Any]],
    run_dir: Path,
    *,
    world_size: int = 1,
    attempt: int = 1,
    environ: dict[str, str] | None = None,
    limit_s: float = 60.0,
    start_method: str = "forkserver",
) -> Run:
    """Trains in processes of their own and waits for their end; a list is one configuration per rank."""
    run_dir.mkdir(parents=True, exist_ok=True)
    children = [
        start_child(
            rank_entry,
            Handover(
                identity=Identity(
                    role=Role.RANK, run_dir=str(run_dir), attempt=attempt, rank=rank, world_size=world_size
                ),
                config=config[rank] if isinstance(config, list) else config,
                environ=dict(os.environ) | {"PROJECT_ALLOW": "tests.helpers.*"} | (environ or {}),
                start_method=start_method,
                threads=1,
            ),
        )
        for rank in range(world_size)
    ]
    records = [_collect(child, limit_s) for child in children]
    processes: Sequence[ManagedProcess] = [child.process for child in children]
    causes = [str(child.outcome) for child in children]
    end_subtree(str(run_dir))  # as main does
    return Run(records, [process.exitcode for process in processes], causes, RunLayout(run_dir))


def _collect(child: Child, limit_s: float) -> dict[str, Any] | None:
    record = None
    assert child.control is not None
    try:
        while child.control.poll(limit_s):
            kind, data = child.control.recv()
            if kind == "result":
                record = data
            if kind == "outcome":
                child.outcome = data
    except EOFError:
        pass
    child.process.join(limit_s)
    if child.process.exitcode is None:
        child.kill()
        child.process.join(5)
        raise AssertionError(f"{child.name} did not end within {limit_s} s")
    child.control.close()
    return record


def equal(one: Any, other: Any) -> bool:
    """Whether two nested structures are equal to the bit."""
    import torch

    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(equal(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)
