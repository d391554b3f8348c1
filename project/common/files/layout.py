"""Every file name of a run folder, in one place."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunLayout:
    """Names the files below one run's folder; makes none of them.

    Args:
        run_dir: `runs/<name>/<time>-<short id>`, or a trial's folder in a sweep.
    """

    run_dir: Path

    @property
    def config(self) -> Path:
        """What ran: the resolved configuration, secrets masked."""
        return self.run_dir / "config.yaml"

    @property
    def overrides(self) -> Path:
        """The command line's overrides, a list."""
        return self.run_dir / "overrides.yaml"

    @property
    def metrics(self) -> Path:
        """Final metrics."""
        return self.run_dir / "metrics.json"

    @property
    def metrics_history(self) -> Path:
        """Every logged value, a line each; survives a kill."""
        return self.run_dir / "metrics.jsonl"

    @property
    def predictions(self) -> Path:
        """What eval.py writes."""
        return self.run_dir / "predictions.parquet"

    @property
    def confusion(self) -> Path:
        """How often each label was taken for which at the end of the training: split, labels, counts."""
        return self.run_dir / "confusion.json"

    @property
    def sample(self) -> Path:
        """What a language model wrote at the end of its training."""
        return self.run_dir / "sample.txt"

    @property
    def report(self) -> Path:
        """What `python -m project.report` writes."""
        return self.run_dir / "report.html"

    @property
    def outcome(self) -> Path:
        """Status, cause, attempts, versions, git commit, seconds."""
        return self.run_dir / "outcome.json"

    @property
    def owner(self) -> Path:
        """Lock of the main process that owns this folder."""
        return self.run_dir / ".owner.lock"

    @property
    def fingerprint(self) -> Path:
        """What a later attempt must have in common to go on here."""
        return self.run_dir / ".fingerprint"

    @property
    def timeline(self) -> Path:
        """What each process did when, as a Chrome trace."""
        return self.run_dir / "timeline.json"

    @property
    def timeline_picture(self) -> Path:
        """The same as a drawing."""
        return self.run_dir / "timeline.svg"

    @property
    def checkpoints_dir(self) -> Path:
        """`best.ckpt` and `last.ckpt`."""
        return self.run_dir / "checkpoints"

    @property
    def wandb_dir(self) -> Path:
        """What W&B writes."""
        return self.run_dir / "wandb"

    @property
    def wandb_run_id(self) -> Path:
        """Under which W&B knows the run, in every attempt."""
        return self.wandb_dir / "run-id"

    @property
    def wandb_open(self) -> Path:
        """There while a W&B run is open; left behind by a process that could not close it."""
        return self.wandb_dir / "open"

    @property
    def processes_dir(self) -> Path:
        """One record per process."""
        return self.run_dir / "processes"

    @property
    def logs_dir(self) -> Path:
        """`run.log` and one file per process."""
        return self.run_dir / "logs"

    @property
    def run_log(self) -> Path:
        """Every line of every process."""
        return self.logs_dir / "run.log"

    def checkpoint(self, name: str) -> Path:
        """Path of the checkpoint `best` or `last`."""
        return self.checkpoints_dir / f"{name}.ckpt"

    def process_log(self, label: str, pid: int) -> Path:
        """Log of one process."""
        return self.logs_dir / f"{label}-{pid}.log"

    def process_record(self, label: str, pid: int) -> Path:
        """Registry record of one process."""
        return self.processes_dir / f"{label}-{pid}.json"

    def written_dirs(self) -> tuple[Path, ...]:
        """Where files are written beside and moved into place; a killed writer leaves its half there."""
        return (self.run_dir, self.checkpoints_dir, self.processes_dir)

    def make(self) -> None:
        """Makes the run's folders."""
        for folder in (self.checkpoints_dir, self.processes_dir, self.logs_dir):
            folder.mkdir(parents=True, exist_ok=True)
