"""The entry behind predict.py: a checkpoint's predictions for new data, which needs no labels."""

from pathlib import Path

from project.common.errors import ConfigError
from project.eval import parse, run_command, take_checkpoint

USAGE = """usage: python predict.py ckpt=PATH input=PATH [output=PATH] [key=value ...]

  ckpt    a checkpoint, or a run's folder (its best checkpoint, else its last)
  input   CSV, TSV, JSONL, JSON, Parquet or text: a file, a folder, a glob, or a list of these
  output  a Parquet file; without it, the first input's name in .predictions.parquet, in the working directory

Columns are named as for the training; task.data.columns.text=body takes another one. Other keys are those of the run's
config.yaml, such as loader.batch_size=256 or trainer.accelerator=cpu. The file has one row per row of the input: row,
text, label, probability, and probabilities in the order of its metadata's labels."""


def main() -> None:
    """Runs the command line and exits with its exit code."""
    run_command(USAGE, predict_command)


def predict_command(arguments: list[str]) -> int:
    """Predicts as the command line says; prints how many rows and where they are."""
    overrides = parse(arguments)
    usage = "python predict.py ckpt=PATH input=PATH"
    checkpoint = take_checkpoint(overrides, usage=usage)
    files = overrides.pop("input", None)
    if not files:
        raise ConfigError(f"input: not given; {usage}")
    files = [str(name) for name in files] if isinstance(files, list) else [str(files)]
    output = Path(str(overrides.pop("output", None) or _default_output(files[0])))
    if not output.absolute().parent.is_dir():
        raise ConfigError(f"output: there is no folder {output.absolute().parent}; make it, or give another path")

    from project.training.predict import predict  # heavy, and only now wanted

    n_rows = predict(checkpoint, files=files, output=output, overrides=overrides)
    print(f"{n_rows:,} predictions: {output}")
    return 0


def _default_output(name: str) -> str:
    stem = Path(name).stem if not set("*?[") & set(name) else ""
    return f"{stem}.predictions.parquet".lstrip(".")


if __name__ == "__main__":
    main()
