"""Children that compute and log metrics."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torchmetrics

from project.common.managers.directory import DirectoryManager
from project.common.managers.metrics import MetricsManager
from project.common.processes.identity import Identity, Role, set_identity

ACCURACY = {"_target_": "torchmetrics.classification.MulticlassAccuracy", "average": "micro"}
Child = Callable[[MetricsManager, Path, int], Any]


class NotANumber(torchmetrics.Metric):
    """Is NaN, as a correlation of constant predictions is."""

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None: ...

    def compute(self) -> torch.Tensor:
        return torch.tensor(float("nan"))


def run_children(child: Child, folder: Path, *, n: int) -> list[Any]:
    """What each of `n` ranks returns, or its exit code if it returned nothing."""
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(n)]
    processes = [
        context.Process(target=_enter, args=(child, str(folder), rank, n, pipes[rank][1])) for rank in range(n)
    ]
    for process in processes:
        process.start()
    for _, writer in pipes:
        writer.close()
    for process in processes:
        process.join(60)
    answers = [_read(reader) for reader, _ in pipes]
    return [process.exitcode if answer is None else answer for process, answer in zip(processes, answers, strict=True)]


def _read(reader: Connection) -> Any:
    try:
        return reader.recv()
    except EOFError:
        return None
    finally:
        reader.close()


def _enter(child: Child, folder: str, rank: int, n: int, answer: Connection) -> None:
    set_identity(Identity(role=Role.RANK, rank=rank, world_size=n, run_dir=f"{folder}/run"))
    directory = DirectoryManager(runs_dir=folder, name="x", cache_dir=folder, min_free_mb=0)
    answer.send(child(MetricsManager(directory=directory, metrics={"acc": ACCURACY}), Path(folder), rank))


def log_and_die(metrics: MetricsManager, folder: Path, rank: int) -> None:
    """Logs two lines and is killed."""
    metrics.log({"val/acc": 0.1}, step=1, epoch=0)
    metrics.log({"val/acc": 0.2}, step=2, epoch=0)
    os.kill(os.getpid(), signal.SIGKILL)


def averages(metrics: MetricsManager, folder: Path, rank: int) -> tuple[float, float]:
    """Mean and accuracy over both ranks of rows 0 to 9, of which rank 0 has seven; those are right."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), 2), rank=rank, world_size=2)
    rows = torch.arange(10.0)[:7] if rank == 0 else torch.arange(10.0)[7:]
    mean, scores = metrics.mean(), metrics.collection("val", n_labels=2)
    for batch in rows.split(4):
        mean.update(batch.mean(), weight=len(batch))
        scores.update(torch.zeros(len(batch), dtype=torch.long), torch.full((len(batch),), rank))
    result = mean.compute().item(), round(scores.compute()["val/acc"].item(), 6)
    dist.destroy_process_group()
    return result
