"""What a trial that goes on for another one takes along from that one's folder."""

import logging
import os
import shutil
from pathlib import Path

from project.common.files.layout import RunLayout

log = logging.getLogger(__name__)


def take_along(old: Path, new: Path) -> int:
    """Brings checkpoints, history and W&B's run into the new folder; returns the attempt that goes on there.

    Checkpoints are replaced as a whole and never changed, so one file may lie in both folders.

    Args:
        old: Folder of the trial that was interrupted; it stays as it is.
        new: Folder of the one that goes on.
    """
    source, target = RunLayout(old), RunLayout(new)
    checkpoints = [path for name in ("best", "last") if (path := source.checkpoint(name)).is_file()]
    if not checkpoints:
        log.info("%s has no checkpoint; its trial begins anew in %s", old, new)
        return 1
    target.make()
    for path in checkpoints:
        _link(path, target.checkpoints_dir / path.name)
    for before, after in ((source.metrics_history, target.metrics_history), (source.wandb_run_id, target.wandb_run_id)):
        if before.is_file():
            after.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(before, after)
    return 2


def say_unclosed(folder: Path) -> None:
    """Says so if a killed trial left its W&B run open there."""
    layout = RunLayout(folder)
    if layout.wandb_open.exists() and layout.wandb_run_id.is_file():
        log.warning("W&B run %s in %s was not closed: its process was killed", layout.wandb_run_id.read_text(), folder)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
