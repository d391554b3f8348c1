"""The entry behind train.py: start the process server, let Hydra compose, supervise the run."""

import importlib
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from project.common.config_hints import hint
from project.common.devices.shared_memory import raise_file_limit
from project.common.early import ensure_home, require_directory
from project.common.processes import process_server
from project.common.processes.outlived_streams import outlive_readers
from project.common.processes.signals import SignalNotes
from project.common.told_exit import exit_code_of, told_by_exit

if TYPE_CHECKING:
    from omegaconf import DictConfig

# Words after which no process of the tree will be needed.
_NO_TREE = ("--help", "-h", "--hydra-help", "--version", "--cfg", "-c", "--info", "-i", "--shell-completion", "-sc")
_MULTIRUN = ("-m", "--multirun")
_INLINE = ("debug=", "processes.inline=true", "processes.start_method=spawn")


def main() -> None:
    """Runs the command line and exits with the run's exit code."""
    require_directory()
    ensure_home()
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
    if not _wants_tree(arguments):
        return False
    if any(argument.lower().startswith(_INLINE) and argument != "debug=null" for argument in arguments):
        return False
    return process_server.is_possible() is None


def is_multirun(arguments: list[str]) -> bool:
    """Whether this command line runs several jobs."""
    return _wants_tree(arguments) and any(argument in _MULTIRUN for argument in arguments)


def _wants_tree(arguments: list[str]) -> bool:
    return not any(argument.split("=")[0] in _NO_TREE for argument in arguments)


def _read_env_file() -> None:
    """Reads `.env` of the working directory; what is set already stays. Before the server, whose children have it."""
    if Path(".env").is_file():
        from dotenv import load_dotenv

        load_dotenv(".env")


def config_dir() -> str:
    """Where the configuration lies: beside train.py in a checkout, in the package when installed."""
    beside = Path(__file__).resolve().parent.parent / "conf"
    return str(beside) if (beside / "config.yaml").is_file() else "pkg://project.conf"


def task(cfg: "DictConfig") -> Any:
    """Hydra's task function, also of a multirun's jobs, whose launcher wants errors as they are."""
    from project.training.job import is_job
    from project.training.launch import supervise
    from project.training.sweep_trial import is_trial

    with nullcontext() if is_trial() else told_by_exit(errors=not is_job()):
        return supervise(cfg)


def _run_hydra() -> int:
    import hydra

    from project.common.whitelist import WHITELIST
    from project.sweeps import plugins
    from project.sweeps.launcher_check import check_launchers
    from project.sweeps.search.null_choices import allow_null_choices
    from project.training.job import requests_passed_on

    allow_null_choices()
    check_launchers()
    plugins.register()
    run = hydra.main(config_path=config_dir(), config_name="config", execution_whitelist=list(WHITELIST))(task)
    try:
        with requests_passed_on() if is_multirun(sys.argv[1:]) else nullcontext():
            run()
    except SystemExit as ended:
        if text := hint(ended.__context__):
            sys.stderr.write(f"{text}\n")
        return exit_code_of(ended)
    return 0


if __name__ == "__main__":
    importlib.import_module("project.train").main()  # under its own name, by which other processes find `task`
