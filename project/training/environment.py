"""The process group of a run's ranks, and what Lightning is told of it: one path for our ranks and torchrun's."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from lightning.fabric.plugins.environments import ClusterEnvironment
from lightning.pytorch.strategies import DDPStrategy

from project.common.files.layout import RunLayout
from project.common.process_registry import set_state
from project.common.processes.identity import Identity

log = logging.getLogger(__name__)

STORE_VARIABLE = "PROJECT_RENDEZVOUS"


class RankEnvironment(ClusterEnvironment):
    """Says that processes and process group exist already; nothing is left to start or to connect."""

    def __init__(self, identity: Identity) -> None:
        super().__init__()
        self._identity = identity

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return os.environ.get("MASTER_ADDR", "127.0.0.1")

    @property
    def main_port(self) -> int:
        return int(os.environ.get("MASTER_PORT", "0"))

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return self._identity.world_size

    def set_world_size(self, size: int) -> None:
        assert size == self._identity.world_size, f"Lightning counts {size} ranks"

    def global_rank(self) -> int:
        return self._identity.rank or 0

    def set_global_rank(self, rank: int) -> None:
        assert rank == self.global_rank(), f"Lightning takes this for rank {rank}, it is rank {self.global_rank()}"

    def local_rank(self) -> int:
        return int(os.environ.get("LOCAL_RANK", self.global_rank())) if is_external() else self.global_rank()

    def node_rank(self) -> int:
        return int(os.environ.get("GROUP_RANK", os.environ.get("SLURM_NODEID", "0"))) if is_external() else 0


class RankStrategy(DDPStrategy):
    """DDP that evaluates without the wrapper: its forward synchronises buffers, and ranks may differ by a batch."""

    def validation_step(self, *args: object, **kwargs: object) -> object:
        return self.lightning_module.validation_step(*args, **kwargs)

    def test_step(self, *args: object, **kwargs: object) -> object:
        return self.lightning_module.test_step(*args, **kwargs)


def is_external() -> bool:
    """Whether torchrun started this process, whose variables then say where to meet."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "MASTER_PORT" in os.environ


@contextmanager
def process_group(identity: Identity, *, run_dir: Path, has_cuda: bool, timeout_s: float) -> Iterator[None]:
    """Joins the other ranks for the block. With one rank there is no group.

    On one machine the ranks meet at a file in the run folder: no port can be taken, none is left open.

    Args:
        has_cuda: Tensors on GPUs go over NCCL; flags and objects on the CPU always over gloo.
        timeout_s: Longest time that a collective waits for the other ranks.
    """
    if identity.world_size == 1:
        yield
        return
    backend = "cpu:gloo,cuda:nccl" if has_cuda else "gloo"
    limit = timedelta(seconds=timeout_s)
    if is_external():
        dist.init_process_group(backend, init_method="env://", timeout=limit)
    else:
        _stay_on_this_machine()
        store = dist.FileStore(str(_store_path(run_dir, identity)), identity.world_size)
        rank, world_size = identity.rank or 0, identity.world_size
        dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=limit)
    log.debug("joined the process group as rank %s of %d over %s", identity.rank, identity.world_size, backend)
    try:
        yield
    finally:
        set_state("closing")  # before the others fail for want of this rank: the first to close has the cause
        dist.destroy_process_group()


def _store_path(run_dir: Path, identity: Identity) -> Path:
    """One file for each start of the group: a file of ranks that died would confuse new ones."""
    if STORE_VARIABLE in os.environ:
        return Path(os.environ[STORE_VARIABLE])
    folder = RunLayout(run_dir).processes_dir
    folder.mkdir(exist_ok=True)
    return folder / f"rendezvous-{identity.attempt}"


def _stay_on_this_machine() -> None:
    """gloo otherwise looks up the host's own name, which some machines cannot resolve and others resolve slowly."""
    if "GLOO_SOCKET_IFNAME" not in os.environ and "lo" in {name for _, name in socket.if_nameindex()}:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
