"""What the terminal shows of a training: a bar in rank 0, or plain lines where there is no terminal."""

import logging
import math
import sys
import time
from typing import TYPE_CHECKING, Any

from lightning.pytorch.callbacks import Callback

from project.training.trial_reports import TrialReports, is_in_sweep

if TYPE_CHECKING:
    from lightning.pytorch import Trainer
    from rich.progress import Progress, TaskID

    from project.training.module import Module

log = logging.getLogger(__name__)


class ProgressReport(Callback):
    """Shows steps, loss, the objective and rows per second; logs the loss of every so many steps.

    Args:
        metric: Shown beside the loss, usually the objective; None: the loss alone.
        refresh_s: Seconds between two updates of the bar.
        line_every_s: Seconds between two lines where there is no terminal; epochs always get one.
    """

    def __init__(self, *, metric: str | None = None, refresh_s: float = 0.2, line_every_s: float = 30.0) -> None:
        self._metric = metric
        self._refresh_s = refresh_s
        self._line_every_s = line_every_s
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._shown_at_s = 0.0
        self._reports = TrialReports()
        self._since: tuple[float, int] = (0.0, 0)
        self._n_rows = 0

    def on_train_start(self, trainer: "Trainer", pl_module: "Module") -> None:
        self._shown_at_s = time.monotonic()
        self._since, self._n_rows = (self._shown_at_s, 0), 0
        if trainer.is_global_zero and sys.stderr.isatty() and not is_in_sweep():
            self._open(trainer)

    def _open(self, trainer: "Trainer") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        # Refreshed by us: the bar's own thread would wake up while the process starts or ends others.
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
        self._task = self._bar.add_task("training", total=_total_batches(trainer), completed=_batches_done(trainer))
        self._bar.start()

    def on_train_batch_end(
        self, trainer: "Trainer", pl_module: "Module", outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not trainer.is_global_zero:
            return
        self._n_rows += len(next(iter(batch.values()))) * trainer.world_size
        self._reports.progress(epoch=trainer.current_epoch, n_done=_batches_done(trainer), n=_total_batches(trainer))
        now = time.monotonic()
        if now - self._shown_at_s >= (self._refresh_s if self._bar else self._line_every_s):
            self._shown_at_s = now
            self._show(trainer, loss=float(outputs["loss"]))

    def _show(self, trainer: "Trainer", *, loss: float | None) -> None:
        text = self._describe(trainer, loss=loss)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=text, completed=_batches_done(trainer), refresh=True)
        else:
            log.info("%s", text)

    def _describe(self, trainer: "Trainer", *, loss: float | None) -> str:
        now = time.monotonic()
        rows_per_s = (self._n_rows - self._since[1]) / max(now - self._since[0], 1e-9)
        self._since = (now, self._n_rows)
        parts = [f"epoch {trainer.current_epoch + 1}", f"step {trainer.global_step}"]
        if loss is not None:
            parts.append(f"loss {loss:.4f}")
        if self._metric in trainer.callback_metrics:
            parts.append(f"{self._metric} {float(trainer.callback_metrics[self._metric]):.4f}")
        return "  ".join([*parts, f"{rows_per_s:,.0f} rows/s"])

    def on_train_epoch_end(self, trainer: "Trainer", pl_module: "Module") -> None:
        if trainer.is_global_zero:  # above the bar too: the bar goes, these lines stay
            log.info("%s", self._describe(trainer, loss=None))

    def on_train_end(self, trainer: "Trainer", pl_module: "Module") -> None:
        self._close()

    def on_exception(self, trainer: "Trainer", pl_module: "Module", exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _batches_done(trainer: "Trainer") -> int:
    per_epoch = trainer.num_training_batches
    if math.isinf(per_epoch):
        return int(trainer.fit_loop.epoch_loop.batch_progress.total.processed)
    epoch = trainer.fit_loop.epoch_progress.current.processed
    return int(epoch * per_epoch + trainer.fit_loop.epoch_loop.batch_progress.current.processed)


def _total_batches(trainer: "Trainer") -> int | None:
    per_epoch = trainer.num_training_batches
    has_epochs = trainer.max_epochs is not None and trainer.max_epochs > 0 and not math.isinf(per_epoch)
    by_epochs = trainer.max_epochs * per_epoch if has_epochs else None
    by_steps = trainer.max_steps * trainer.accumulate_grad_batches if trainer.max_steps > 0 else None
    ends = [end for end in (by_epochs, by_steps) if end is not None]
    return int(min(ends)) if ends else None
