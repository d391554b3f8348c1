"""The entry behind train.py: start the process server, let Hydra compose, supervise the run."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from project.common.devices.shared_memory import raise_file_limit
from project.common.errors import ProjectError
from project.common.processes import process_server, stop
from project.common.processes.outlived_streams import outlive_readers
from project.common.processes.signals import SignalNotes

if TYPE_CHECKING:
    from omegaconf import DictConfig

# Words after which no process of the tree will be needed.
_NO_TREE = ("--help", "-h", "--hydra-help", "--version", "--cfg", "-c", "--info", "-i", "--shell-completion", "-sc")
_INLINE = ("debug=", "processes.inline=true", "processes.start_method=spawn")


def main() -> None:
    """Runs the command line and exits with the run's exit code."""
    outlive_readers()
    raise_file_limit()  # every process of the tree inherits it
    with SignalNotes(deadline_s=10.0):
        try:
            _read_env_file()
            if wants_server(sys.argv[1:]):
                process_server.start()
            code = _run_hydra()
        finally:
            process_server.stop()
    sys.exit(code)


def wants_server(arguments: list[str]) -> bool:
    """Whether this command line will start processes, so that the server may start while Hydra composes."""
    if any(argument.split("=")[0] in _NO_TREE for argument in arguments):
        return False
    if any(argument.lower().startswith(_INLINE) and argument != "debug=null" for argument in arguments):
        return False
    return process_server.is_possible() is None


def _read_env_file() -> None:
    """Reads `.env` of the working directory; what is set already stays. Before the server, whose children have it."""
    if Path(".env").is_file():
        from dotenv import load_dotenv

        load_dotenv(".env")


def config_dir() -> str:
    """Where the configuration lies: beside train.py in a checkout, in the package when installed."""
    beside = Path(__file__).resolve().parent.parent / "conf"
    return str(beside) if (beside / "config.yaml").is_file() else "pkg://project.conf"


def _run_hydra() -> int:
    import hydra

    from project.common.whitelist import WHITELIST
    from project.sweeps.null_choices import allow_null_choices

    allow_null_choices()
    started = False

    def task(cfg: "DictConfig") -> Any:
        nonlocal started
        started = True
        from omegaconf.errors import OmegaConfBaseException

        from project.training.launch import supervise

        try:
            return supervise(cfg)
        except OmegaConfBaseException as error:  # a reference in a circle, to nothing, or to an unset variable
            first_line = str(error).partition("\n")[0]
            sys.exit(_say(f"{error.full_key}: {first_line}; correct the reference, or give a value", 2))
        except ProjectError as error:  # Hydra would print a traceback, which adds nothing to the text
            sys.exit(_say(error, error.exit_code))
        except stop.StopRequested as stopped:
            reason = stopped.request.reason
            sys.exit(_say(f"stopped before the run began ({reason})", stopped.request.exit_code))

    run = hydra.main(config_path=config_dir(), config_name="config", execution_whitelist=list(WHITELIST))(task)
    try:
        run()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
        # Before the task began Hydra's own 1 means that it refused the command line.
        return 2 if code == 1 and not started else code
    return 0


def _say(text: object, exit_code: int) -> int:
    print(text, file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    main()
