"""The entry behind eval.py: read what the checkpoint was trained with, apply what was typed, evaluate, print."""

import sys
from pathlib import Path
from typing import Any

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
    require_directory()
    ensure_home()
    outlive_readers()
    raise_file_limit()  # every process of the tree inherits it
    arguments = sys.argv[1:]
    if not arguments or {"-h", "--help"} & set(arguments):
        print(USAGE)
        sys.exit(0 if arguments else 2)
    with SignalNotes(deadline_s=10.0):
        try:
            code = evaluate_command(arguments)
        except StopRequested as stopped:
            print(f"stopped ({stopped.request.reason})", file=sys.stderr)
            code = stopped.request.exit_code
        except ProjectError as error:
            print(error, file=sys.stderr)
            code = error.exit_code
    sys.exit(code)


def evaluate_command(arguments: list[str]) -> int:
    """Evaluates as the command line says; prints the metrics and where the predictions are."""
    overrides = dict(_parse(argument) for argument in arguments)
    if not overrides.get("ckpt"):
        raise ConfigError("ckpt: not given; python eval.py ckpt=PATH")
    checkpoint = find_checkpoint(Path(str(overrides.pop("ckpt"))))
    split = str(overrides.pop("split", "test"))

    from project.training.evaluate import evaluate  # heavy, and only now wanted
    from project.training.report import print_metrics

    result = evaluate(checkpoint, split=split, overrides=overrides)
    print_metrics(result)
    print(f"predictions: {result['predictions']}")
    return 0


def _parse(argument: str) -> tuple[str, Any]:
    """A value as typed: numbers, lists, null and the like by YAML's rules, else text."""
    import yaml

    key, separator, text = argument.partition("=")
    key = key.lstrip("+")
    if not separator or not key or "/" in key or key.startswith(("-", "~")):
        raise ConfigError(f"{argument}: is not key=value; a group's choice cannot be changed after the training")
    try:
        return key, yaml.safe_load(text)
    except yaml.YAMLError:
        return key, text


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
