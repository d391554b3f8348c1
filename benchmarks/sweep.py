"""What a sweep costs: one table from one run, judged by ratios within it. make benchmark-sweep ARGS="--trials 200"

The same trials with our launcher and with those that people use otherwise, then many trials that do nothing.
Ends with exit code 1 where an aim is missed or a command fails; launchers that are not installed are named.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from project.common.process_registry import read_run  # noqa: E402 - likewise
from benchmarks.measure import Place  # noqa: E402 - found by the line above
from benchmarks.startup import DDP, measure_all  # noqa: E402 - likewise
from benchmarks.sweep_measure import (  # noqa: E402 - likewise
    gaps_s,
    growth,
    memory_growth,
    outcomes,
    require_equal_steps,
    run_watched,
    start_up_s,
)
from benchmarks.table import Row, machine, print_table, write_results  # noqa: E402 - likewise

RESULTS = ROOT / "benchmarks" / "results" / "sweep.json"
OURS, PLAIN = str(ROOT / "train.py"), str(ROOT / "benchmarks" / "plain_hydra.py")
INLINE = ("hydra/sweeper=basic", "processes.inline=true", "resume=never")
EMPTY = ("task=trivial", "task.run.steps=1", "task.run.step_s=0", "logger=none", "managers/wandb=disabled")
N_REAL = 6
INSTALL = "not installed: make extras EXTRAS=benchmark"
# Two at once share the cores. Ours sees to that, the others are told.
OTHERS = {
    "basic": ("hydra/launcher=basic",),
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "processes.threads=1"),
    "submitit": ("hydra/launcher=submitit_local", "hydra.sweeper.max_batch_size=2", "processes.threads=1"),
}
# The longest that ours may take, in parts of theirs: (slots, launcher).
AIMS = {(1, "basic"): 1.05, (2, "basic"): 0.6, (2, "joblib"): 0.4, (2, "submitit"): 0.15}
OVERHEAD_MS, GROWTH, MEMORY_GROWTH, START_UP_S = 60.0, 1.5, 1.1, 1.0


class SweepBenchmark:
    """The measurements, in a place of their own.

    Args:
        place: Where commands run.
        repeats: How often what is compared takes turns; medians count.
        n_trials: That do nothing.
        n_real: Trials that train.
        epochs: Of each of them; one takes two seconds.
    """

    def __init__(
        self, place: Place, *, repeats: int = 1, n_trials: int = 1000, n_real: int = N_REAL, epochs: int = 1
    ) -> None:
        self.place, self.repeats, self.n_trials, self.n_real = place, repeats, n_trials, n_real
        self._real = ("trainer=cpu", f"trainer.max_epochs={epochs}", "logger=csv", "managers/wandb=disabled")
        self._is_prepared = False
        self._n_named = 0

    def _prepare(self) -> None:
        """Prepares data, tokenizer and baselines, once, by a short run."""
        if not self._is_prepared:
            self.place.train("prepare", *DDP)
            self._is_prepared = True

    def _name(self, what: str) -> str:
        self._n_named += 1
        return f"{what}_{self._n_named}"

    def real(self) -> list[Row]:
        """Whole commands with trials that train: ours with one and two slots, and the other launchers."""
        self._prepare()
        seconds: dict[Any, list[float]] = {}
        found = []
        ways: dict[Any, Callable[[], tuple[float, list[dict[str, Any]]]]] = {
            1: lambda: self._ours(1),
            "basic": lambda: self._others("basic"),
            2: lambda: self._ours(2),
            **{name: lambda name=name: self._others(name) for name in ("joblib", "submitit") if is_installed(name)},
        }
        for _ in range(self.repeats):
            for way, run in ways.items():
                took, trials = run()
                seconds.setdefault(way, []).append(took)
                found.append(trials)
        require_equal_steps(found)
        train_s = statistics.median(outcome["result"]["train_s"] for outcome in found[0])
        medians = {way: statistics.median(values) for way, values in seconds.items()}
        return self._compared(medians, train_s=train_s)

    def _compared(self, seconds: dict[Any, float], *, train_s: float) -> list[Row]:
        rows = []
        for (slots, other), aim in AIMS.items():
            what = f"{self.n_real} trials, ours with {slots} / {other}"
            if other not in seconds:
                rows.append(Row(what=what, value=None, unit="times", aim=aim, detail=f"{other} is {INSTALL}"))
                continue
            detail = f"{seconds[slots]:.1f} s / {seconds[other]:.1f} s"
            rows.append(Row(what=what, value=seconds[slots] / seconds[other], unit="times", aim=aim, detail=detail))
        return [*rows, Row(what="training of one of them", value=train_s, unit="s", detail="ours with 1")]

    def _ours(self, slots: int) -> tuple[float, list[dict[str, Any]]]:
        name = self._name(f"ours{slots}")
        seeds = ",".join(str(seed) for seed in range(1, self.n_real + 1))
        took = self.place.python(
            OURS,
            "-m",
            *self._real,
            f"name={name}",
            f"seed=choice({seeds})",
            "hydra/sweeper/sampler=grid",
            f"hydra.sweeper.n_trials={self.n_real}",
            f"hydra.sweeper.n_jobs={slots}",
        )
        return took, outcomes(self.place.folder / "sweeps" / name, self.n_real)

    def _others(self, launcher: str) -> tuple[float, list[dict[str, Any]]]:
        name = self._name(launcher)
        seeds = ",".join(str(seed) for seed in range(1, self.n_real + 1))
        took = self.place.python(PLAIN, "-m", *self._real, *INLINE, *OTHERS[launcher], f"name={name}", f"seed={seeds}")
        return took, outcomes(self.place.folder / "sweeps" / name, self.n_real)

    def empty(self) -> list[Row]:
        """Trials that do nothing: half of the basic launcher's before ours, half after."""
        half = max(2, self.n_trials // 2)
        before = self._empty_basic(half)
        ours, samples = self._empty_ours("random")
        basic = statistics.median([*before, *self._empty_basic(half)])
        tpe, _ = self._empty_ours("tpe")
        gaps = gaps_s(ours)
        mine = statistics.median(gaps)
        first, last = growth(gaps)
        first_mb, last_mb = memory_growth(samples, ours)
        first_tpe, last_tpe = growth(gaps_s(tpe))
        n = self.n_trials
        return [
            Row(
                what=f"{n:,} empty trials, each: ours - basic",
                value=(mine - basic) * 1000,
                unit="ms",
                aim=OVERHEAD_MS,
                detail=f"{mine * 1000:.0f} ms - {basic * 1000:.0f} ms",
            ),
            _growth_row(f"{n:,} empty trials, last / first", first * 1000, last * 1000, "ms", aim=GROWTH),
            _growth_row(f"{n:,} empty trials with TPE, last / first", first_tpe * 1000, last_tpe * 1000, "ms"),
            _growth_row(f"{n:,} empty trials, main's memory, last / first", first_mb, last_mb, "MB", aim=MEMORY_GROWTH),
        ]

    def _empty_ours(self, sampler: str) -> tuple[list[dict[str, Any]], list[tuple[float, float]]]:
        name = self._name(sampler)
        samples = run_watched(
            self.place,
            name,
            OURS,
            "-m",
            *EMPTY,
            f"name={name}",
            "seed=range(1,100000)",
            f"hydra/sweeper/sampler={sampler}",
            f"hydra.sweeper.n_trials={self.n_trials}",
        )
        return outcomes(self.place.folder / "sweeps" / name, self.n_trials), samples

    def _empty_basic(self, n_trials: int) -> list[float]:
        name = self._name("empty_basic")
        self.place.python(PLAIN, "-m", *EMPTY, *INLINE, *OTHERS["basic"], f"name={name}", f"seed=range(0,{n_trials})")
        return gaps_s(outcomes(self.place.folder / "sweeps" / name, n_trials))

    def start_up(self) -> list[Row]:
        """From the beginning of a trial to the first batch on the slowest of its 2 ranks with 2 workers each."""
        self._prepare()
        name, n_trials = self._name("ddp"), max(2, self.repeats)
        self.place.python(
            OURS, "-m", *DDP, "managers/wandb=disabled", f"name={name}", "seed=range(1,1000)",
            f"hydra.sweeper.n_trials={n_trials}",
        )  # fmt: skip
        folder = self.place.folder / "sweeps" / name
        outcomes(folder, n_trials)
        found = [start_up_s(read_run(folder / str(number))) for number in range(n_trials)]
        detail = f"of {n_trials} trials: {min(found):.2f} to {max(found):.2f} s"
        what = "start of a trial to first batch, 2 ranks x 2 workers"
        return [Row(what=what, value=statistics.median(found), unit="s", aim=START_UP_S, detail=detail)]


NAMES = ("real", "start_up", "empty")


def is_installed(launcher: str) -> bool:
    """Whether Hydra can find this launcher."""
    return launcher == "basic" or find_spec(f"hydra_plugins.hydra_{launcher}_launcher") is not None


def _growth_row(what: str, first: float, last: float, unit: str, *, aim: float | None = None) -> Row:
    return Row(what=what, value=last / first, unit="times", aim=aim, detail=f"{last:.0f} {unit} / {first:.0f} {unit}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, writes; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="that do nothing (default 1000)")
    parser.add_argument("--repeats", type=int, default=3, help="turns of what is compared; medians count (default 3)")
    parser.add_argument("--epochs", type=int, default=1, help="of each trial that trains (default 1)")
    parser.add_argument("--only", choices=NAMES, action="append", help="may be given again; all without it")
    given = parser.parse_args(arguments)
    facts = machine()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        benchmark = SweepBenchmark(
            Place(folder=Path(folder)), repeats=given.repeats, n_trials=given.trials, epochs=given.epochs
        )
        rows, failed = measure_all(benchmark, given.only or NAMES)
    print_table(rows, facts)
    for name, error in failed.items():
        print(f"{name} failed: {error}", file=sys.stderr)
    if not given.only and not failed:
        write_results(RESULTS, rows, facts)
    return 1 if failed or not all(row.is_ok for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
