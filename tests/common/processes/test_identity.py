"""Who a process is, as plain data, and what tells it from every other."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from project.common.processes.identity import Identity, ProcessKey, Role


@pytest.mark.parametrize(
    ("identity", "label"),
    [
        (Identity(role=Role.MAIN), "main"),
        (Identity(role=Role.TRIAL, trial=3), "trial"),
        (Identity(role=Role.RANK), "rank0"),
        (Identity(role=Role.RANK, rank=1), "rank1"),
        (Identity(role=Role.WORKER, rank=1, worker=2), "rank1-worker2"),
        (Identity(role=Role.WORKER), "rank0-worker0"),
    ],
)
def test_has_a_short_name(identity: Identity, label: str) -> None:
    assert identity.label == label


def test_crosses_as_plain_data() -> None:
    identity = Identity(
        role=Role.WORKER, run_dir="/run", attempt=2, trial=3, rank=1, world_size=2, worker=0, n_workers=2
    )

    assert Identity.from_dict(identity.as_dict()) == identity
    assert type(identity.as_dict()["role"]) is str


def test_a_child_keeps_the_place_of_its_parent() -> None:
    trial = Identity(role=Role.TRIAL, run_dir="/run", trial=3)

    assert trial.child(role=Role.RANK, rank=1) == Identity(role=Role.RANK, run_dir="/run", trial=3, rank=1)


def test_a_key_is_alive_as_long_as_its_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    key = ProcessKey.of(process.pid)
    assert key is not None
    alive = key.is_alive()
    process.communicate(b"\n", timeout=10)

    assert (alive, key.is_alive(), ProcessKey.of(process.pid)) == (True, False, None)


def test_a_pid_that_is_used_again_is_another_process() -> None:
    own = ProcessKey.own()

    assert own.is_alive()
    assert not replace(own, start_time="1").is_alive()


@pytest.mark.parametrize("elsewhere", ["host", "boot_id", "pid_namespace"])
def test_a_process_elsewhere_cannot_be_seen_from_here(elsewhere: str) -> None:
    key = ProcessKey(**vars(ProcessKey.own()) | {elsewhere: "another"})

    assert not key.is_local()
    assert not key.is_alive()
    assert key.pid == os.getpid()
