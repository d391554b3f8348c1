"""Ranks that agree, each in a process of its own."""

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

Answers = list[tuple[int, int, bool]]


def run_ranks(child: Callable[..., Answers], folder: Path, **options: Any) -> list[Answers]:
    """What each of two ranks answers."""
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    processes = [
        context.Process(target=_enter, args=(child, folder, rank, pipes[rank][1], options)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    answers = []
    for (reader, writer), process in zip(pipes, processes, strict=True):
        writer.close()
        answers.append(reader.recv())
        reader.close()
        process.join(30)
    return answers


def _enter(child: Callable[..., Answers], folder: Path, rank: int, answer: Connection, options: dict[str, Any]) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), 2), rank=rank, world_size=2)
    answer.send(child(rank, **options))
    dist.destroy_process_group()


def ask(rank: int, *, n_steps: int = 40, step_s: float = 0.02) -> Answers:
    """The steps at which something was agreed on, and what."""
    from project.training.agreement import Agreement

    agreement, found = Agreement(2), []
    for step in range(1, n_steps + 1):
        time.sleep(step_s)
        code = 143 if rank == 1 and step >= 5 else 0
        before = agreement._next
        decision = agreement.decide(step, exit_code=code, save=rank == 0 and step >= 3)
        if agreement._next != before:
            found.append((step, decision.exit_code, decision.save))
    return found
