"""A checkpoint as a folder that transformers opens: python -m project.export ckpt=PATH to=FOLDER."""

from pathlib import Path

from project.common.errors import ConfigError
from project.eval import parse, run_command, take_checkpoint

USAGE = """usage: python -m project.export ckpt=PATH to=FOLDER [key=value ...]

  ckpt    a checkpoint, or a run's folder (its best checkpoint, else its last)
  to      a folder that is not there yet

The folder holds config.json with the label names, model.safetensors and the tokenizer's files, as AutoModel and
AutoTokenizer of transformers read them. Models of transformers only; adapters (LoRA) are merged into the weights."""


def main() -> None:
    """Runs the command line and exits with its exit code."""
    run_command(USAGE, export_command)


def export_command(arguments: list[str]) -> int:
    """Exports as the command line says; prints where."""
    overrides = parse(arguments)
    usage = "python -m project.export ckpt=PATH to=FOLDER"
    checkpoint = take_checkpoint(overrides, usage=usage)
    if not overrides.get("to"):
        raise ConfigError(f"to: not given; {usage}")
    folder = Path(str(overrides.pop("to"))).absolute()
    if folder.exists():
        raise ConfigError(f"to: {folder} is there already; give a new folder, or remove it")

    from project.training.export import export  # heavy, and only now wanted

    print(f"exported: {export(checkpoint, folder, overrides=overrides)}")
    return 0


if __name__ == "__main__":
    main()
