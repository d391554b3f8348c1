"""The entry behind eval.py: read what the checkpoint was trained with, apply what was typed, evaluate, print."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from project.common.devices.shared_memory import raise_file_limit
from project.common.early import ensure_home, require_directory
from project.common.errors import CheckpointError, ConfigError, ProjectError
from project.common.processes.outlived_streams import outlive_readers
from project.common.processes.signals import SignalNotes
from project.common.processes.stop import StopRequested

USAGE = """usage: python eval.py ckpt=PATH [split=test] [key=value ...]

  ckpt    a checkpoint, or a run's folder (its best checkpoint, else its last)
  split   train, val or test

Other keys are those of the run's config.yaml, such as loader.batch_size=64 or task.data.files=new.csv.
Predictions go to predictions.parquet in the run's folder."""


def main() -> None:
    """Runs the command line and exits with its exit code."""
    run_command(USAGE, evaluate_command)


def run_command(usage: str, command: Callable[[list[str]], int]) -> NoReturn:
    """Runs a command on what was typed and exits with its exit code; an error of ours is its text."""
    require_directory()
    ensure_home()
    outlive_readers()
    raise_file_limit()  # every process of the tree inherits it
    arguments = sys.argv[1:]
    if not arguments or {"-h", "--help"} & set(arguments):
        print(usage)
        sys.exit(0 if arguments else 2)
    with SignalNotes(deadline_s=10.0):
        try:
            code = command(arguments)
        except StopRequested as stopped:
            print(f"stopped ({stopped.request.reason})", file=sys.stderr)
            code = stopped.request.exit_code
        except ProjectError as error:
            print(error, file=sys.stderr)
            code = error.exit_code
    sys.exit(code)


def evaluate_command(arguments: list[str]) -> int:
    """Evaluates as the command line says; prints the metrics and where the predictions are."""
    overrides = parse(arguments)
    checkpoint = take_checkpoint(overrides, usage="python eval.py ckpt=PATH")
    split = str(overrides.pop("split", "test"))

    from project.training.evaluate import evaluate  # heavy, and only now wanted
    from project.training.report import print_metrics

    result = evaluate(checkpoint, split=split, overrides=overrides)
    print_metrics(result)
    print(f"predictions: {result['predictions']}")
    return 0


def parse(arguments: list[str]) -> dict[str, Any]:
    """Keys and values as typed: numbers, lists, null and the like by YAML's rules, else text."""
    return dict(_parse_one(argument) for argument in arguments)


def _parse_one(argument: str) -> tuple[str, Any]:
    import yaml

    key, separator, text = argument.partition("=")
    key = key.lstrip("+")
    if not separator or not key or "/" in key or key.startswith(("-", "~")):
        raise ConfigError(f"{argument}: is not key=value; a group's choice cannot be changed after the training")
    try:
        return key, yaml.safe_load(text)
    except yaml.YAMLError:
        return key, text


def take_checkpoint(overrides: dict[str, Any], *, usage: str) -> Path:
    """Takes `ckpt` out of what was typed and returns the file that it means.

    Raises:
        ProjectError: None was given, or there is none.
    """
    if not overrides.get("ckpt"):
        raise ConfigError(f"ckpt: not given; {usage}")
    return find_checkpoint(Path(str(overrides.pop("ckpt"))))


def find_checkpoint(path: Path) -> Path:
    """The file at `path`, or the best (else the last) checkpoint of a run's folder.

    Raises:
        CheckpointError: There is none.
    """
    if path.is_file():
        return path
    for name in ("best", "last"):
        for folder in (path / "checkpoints", path):
            if (folder / f"{name}.ckpt").is_file():
                return folder / f"{name}.ckpt"
    raise CheckpointError(f"ckpt: there is no checkpoint at {path}; give a .ckpt file or a run's folder")


if __name__ == "__main__":
    main()
