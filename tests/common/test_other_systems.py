"""What other systems lack is looked for before it is used: everything can be imported there. Simulated."""

import subprocess
import sys

from tests.helpers.tree import ROOT

CODE = """
import datasets, hydra, lightning.pytorch, multiprocessing.forkserver, multiprocessing.popen_spawn_posix, optuna, plotly
import torch, torchmetrics.classification, transformers, wandb
import importlib, os, pkgutil, signal
for name in ("SIGUSR1", "SIGUSR2", "SIGKILL", "SIGHUP", "SIGQUIT", "SIGURG", "SIGCHLD", "SIGSTOP", "SIGCONT", "SIGALRM",
             "pthread_kill", "pthread_sigmask", "pidfd_send_signal"):
    delattr(signal, name)
for name in ("killpg", "fork", "setsid", "pidfd_open", "getuid", "register_at_fork", "sched_getaffinity", "waitid"):
    delattr(os, name)
import project
for module in pkgutil.walk_packages(project.__path__, f"{project.__name__}."):
    importlib.import_module(module.name)
print("imported")
"""


def test_every_module_can_be_imported_where_signals_and_forks_are_missing() -> None:
    result = subprocess.run(
        [sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )

    assert result.stdout == "imported\n", result.stderr
