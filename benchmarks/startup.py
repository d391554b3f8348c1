"""What isolation costs: one table from one run, judged by ratios within it. make benchmark ARGS="--repeats 5"

Ends with exit code 1 where an aim is missed, a command fails, or processes fell back to spawn.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from benchmarks.measure import (  # noqa: E402 - found by the line above
    BenchmarkError,
    Place,
    Run,
    medians,
    memory_of_main,
    record_processes,
)
from benchmarks.table import Row, machine, print_table, write_results  # noqa: E402 - likewise

RESULTS = ROOT / "benchmarks" / "results" / "startup.json"
DDP = ("+experiment=language_id_ddp", "trainer.max_steps=2", "logger=csv")


class Benchmark:
    """The measurements, in a place of their own.

    Args:
        place: Where commands run.
        repeats: How often each is measured; medians count.
        epochs: Of the whole run; None takes the configuration's.
    """

    def __init__(self, place: Place, *, repeats: int, epochs: int | None = None) -> None:
        self.place, self.repeats, self.epochs = place, repeats, epochs
        self._prepared: Path | None = None
        self._last: Run | None = None

    def prepare(self) -> Path:
        """Prepares data and tokenizer, once, by a run of two steps; returns its folder."""
        if self._prepared is None:
            self._prepared = self.place.train("prepare", *DDP).run_dir
        return self._prepared

    def _medians(self, *measures: Callable[[], float]) -> list[float]:
        """Takes turns, so that whatever else the machine does hits all of them."""
        samples = [[measure() for measure in measures] for _ in range(self.repeats)]
        return [statistics.median(column) for column in zip(*samples, strict=True)]

    def commands(self) -> list[Row]:
        """Commands that start nothing."""
        train, python = str(ROOT / "train.py"), self.place.python
        measures: list[Callable[[], float]] = [
            lambda: python("-c", "import lightning.pytorch"),
            lambda: python(train, "--help"),
            lambda: python(train, "--cfg", "job"),
        ]
        for measure in measures:
            measure()  # the first time files come from the disk, and code is compiled
        bare, *ours = self._medians(*measures)
        return [
            Row(
                what=f"train.py {name} / import of Lightning",
                value=seconds / bare,
                unit="times",
                aim=0.25,
                detail=f"{seconds:.2f} s / {bare:.2f} s",
            )
            for name, seconds in zip(("--help", "--cfg job"), ours, strict=True)
        ]

    def first_batch(self) -> list[Row]:
        """From the start of the trial to the first batch on the slowest of 2 ranks with 2 workers each."""
        self.prepare()
        forked, spawned = self._medians(
            lambda: self.place.train("forkserver", *DDP).to_first_batch_s,
            lambda: self.place.train("spawn", *DDP, method="spawn").to_first_batch_s,
        )
        what = "trial start to first batch, 2 ranks x 2 workers"
        return [
            Row(what=what, value=forked, unit="s", aim=1.0),
            Row(
                what=f"{what}: spawn / forkserver",
                value=spawned / forked,
                unit="times",
                aim=40,
                at_least=True,
                detail=f"{spawned:.1f} s / {forked:.2f} s",
            ),
        ]

    def memory(self) -> list[Row]:
        """Private memory of each process right after its managers were built."""
        forked, spawned = self._probe("forkserver"), self._probe("spawn")
        main = memory_of_main(self.place, "main_memory", *DDP)
        rows = [
            Row(
                what=f"private memory of a {role}",
                value=forked[f"{role}.uss"],
                unit="MB",
                aim=60 if role == "worker" else None,
                detail=f"spawn: {spawned[f'{role}.uss']:.0f} MB",
            )
            for role in ("trial", "rank", "worker")
        ]
        detail = f"private: {main['uss']:.0f} MB"
        return [*rows, Row(what="memory of main (RSS)", value=main["rss"], unit="MB", aim=120, detail=detail)]

    def managers(self) -> list[Row]:
        """Building all managers of a rank in a warm process."""
        forked, spawned = self._probe("forkserver"), self._probe("spawn")
        detail = f"spawn: {spawned['rank.build_s'] * 1000:.0f} ms"
        value = forked["rank.build_s"] * 1000
        return [Row(what="building a rank's managers", value=value, unit="ms", aim=50, detail=detail)]

    def _probe(self, method: str) -> dict[str, float]:
        arguments = ("-m", "benchmarks.memory_probe", method, str(self.prepare()))
        samples = [_flat(json.loads(self.place.output_of(*arguments))) for _ in range(self.repeats)]
        return medians(samples)

    def whole_run(self) -> list[Row]:
        """The default run against the same in plain Lightning, both with prepared data."""
        self.prepare()
        ours, bare = self._medians(self._default_run, self._bare_run)
        return [
            Row(
                what="whole default run / bare Lightning script",
                value=ours / bare,
                unit="times",
                aim=1.15,
                detail=f"{ours:.1f} s / {bare:.1f} s",
            )
        ]

    def listing(self) -> list[Row]:
        """The process table of a run of a thousand processes, from the command to the prompt."""
        run_dir = self.place.folder / "thousand"
        record_processes(run_dir, 1000)
        (seconds,) = self._medians(lambda: self.place.python("-m", "project.ps", str(run_dir)))
        return [Row(what="project.ps of 1,000 processes", value=seconds, unit="s", aim=0.5)]

    def _default_run(self) -> float:
        epochs = () if self.epochs is None else (f"trainer.max_epochs={self.epochs}",)
        self._last = self.place.train("default", "task=language_id", "trainer=cpu", *epochs)
        return self._last.seconds

    def _bare_run(self) -> float:
        """With the numbers of our last run.

        Raises:
            BenchmarkError: It came to another number of steps.
        """
        assert self._last is not None, "ours comes first"
        out = self.place.folder / "bare"
        out.mkdir(exist_ok=True)
        cache = self.place.folder / "cache" / "project"
        seconds = self.place.python(
            str(ROOT / "benchmarks" / "bare_lightning.py"),
            f"--data={_only_folder(cache / 'data')}",
            f"--tokenizer={_only_folder(cache / 'tokenizers')}",
            f"--out={out}",
            f"--settings={json.dumps(bare_settings(self._last.config))}",
        )
        steps = json.loads((out / "result.json").read_text())["steps"]
        if steps != self._last.outcome["result"]["step"]:
            raise BenchmarkError(f"the bare script made {steps} steps, the run {self._last.outcome['result']['step']}")
        return seconds


def bare_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a run that the bare script has no other way to know."""
    task = config["task"]
    optimizer = {name: value for name, value in task["optimizer"].items() if name != "_target_"}
    return {name: task["model"][name] for name in ("width", "n_layers", "dropout")} | {
        "optimizer": optimizer,
        "warmup_fraction": task["warmup_fraction"],
        "label_smoothing": task["label_smoothing"],
        "batch_size": config["loader"]["batch_size"],
        "gradient_clip_val": config["trainer"]["gradient_clip_val"],
        "epochs": config["trainer"]["max_epochs"],
    }


NAMES = ("commands", "first_batch", "memory", "managers", "whole_run", "listing")


def _flat(found: dict[str, dict[str, float]]) -> dict[str, float]:
    return {f"{role}.{name}": value for role, values in found.items() for name, value in values.items()}


def _only_folder(parent: Path) -> Path:
    folders = [path for path in parent.iterdir() if path.is_dir()]
    if len(folders) != 1:
        raise BenchmarkError(f"{len(folders)} prepared {parent.name}: was code edited while this ran?")
    return folders[0]


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints, writes; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each; medians count (default 3)")
    parser.add_argument("--only", choices=NAMES, action="append", help="may be given again; all without it")
    parser.add_argument("--epochs", type=int, help="of the whole run; the configuration's without it")
    given = parser.parse_args(arguments)
    facts = machine()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        benchmark = Benchmark(Place(folder=Path(folder)), repeats=given.repeats, epochs=given.epochs)
        rows, failed = measure_all(benchmark, given.only or NAMES)
    print_table(rows, facts)
    for name, error in failed.items():
        print(f"{name} failed: {error}", file=sys.stderr)
    if not given.only and not failed:
        write_results(RESULTS, rows, facts)
    return 1 if failed or not all(row.is_ok for row in rows) else 0


def measure_all(benchmark: object, names: Iterable[str]) -> tuple[list[Row], dict[str, BenchmarkError]]:
    """Returns all rows, and why a measurement failed; the others are made nevertheless."""
    rows: list[Row] = []
    failed = {}
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        try:
            rows += getattr(benchmark, name)()
        except BenchmarkError as error:
            failed[name] = error
    return rows, failed


if __name__ == "__main__":
    sys.exit(main())
