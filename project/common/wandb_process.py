"""What W&B does to the process that uses it, besides its run, and how that is undone."""

import contextlib
import multiprocessing.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from project.common.files.secrets import mask_override

_SERVICE = "wandb-core"


@contextlib.contextmanager
def arguments_masked() -> Iterator[None]:
    """W&B stores the command line, which every process of the tree has from main."""
    given = sys.argv[:]
    sys.argv[:] = map(mask_override, given)
    try:
        yield
    finally:
        sys.argv[:] = given


def remove_scratch_at_end() -> None:
    """W&B makes two folders when it is imported and leaves them to `atexit`, which started processes do not run."""
    from wandb.sdk.artifacts.artifact import Artifact
    from wandb.sdk.data_types._private import MEDIA_TMP

    for folder in (MEDIA_TMP, Artifact._TMP_DIR):
        multiprocessing.util.Finalize(folder, folder.cleanup, exitpriority=0)


def kill_services(wait_s: float) -> None:
    """Ends W&B's service processes of this process, which should have ended, and removes their sockets."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.name() == _SERVICE:
                child.kill()
                child.wait(wait_s)
    for folder in Path(tempfile.gettempdir()).glob(f"wandb-{os.getpid()}-*"):
        shutil.rmtree(folder, ignore_errors=True)
