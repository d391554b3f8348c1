"""Serves optuna-dashboard on a sweep's storage.

    python -m project.sweeps.shown.dashboard SWEEP [--host NAME] [--port NUMBER]

Its own command would show the storage's password to everybody who may list processes.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from project.common.errors import ConfigError, ProjectError
from project.common.processes.outlived_streams import outlive_readers

PACKAGE = __name__.partition(".")[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line until Ctrl-C; returns its exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {PACKAGE}.sweeps.dashboard", description=__doc__)
    parser.add_argument("sweep", type=Path, metavar="SWEEP", help="a sweep's folder, sweeps/<study>")
    parser.add_argument("--host", default="127.0.0.1", help="who may connect; by default this machine only")
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args(arguments)
    try:
        serve(options.sweep, host=options.host, port=options.port)
    except ProjectError as error:
        return _say(error, error.exit_code)
    except OSError as error:
        return _say(f"port {options.port}: {error.strerror or error}; give another: --port {options.port + 1}", 1)
    except KeyboardInterrupt:
        return 0
    return 0


def serve(sweep_dir: Path, *, host: str, port: int) -> None:
    """Serves until it is interrupted.

    Raises:
        ConfigError: There is no sweep, or optuna-dashboard is not installed.
    """
    from project.sweeps.shown.stored_study import find_place
    from project.sweeps.study.connecting import connect, disconnect

    place = find_place(sweep_dir)
    try:
        from optuna_dashboard import run_server
    except ImportError:
        raise ConfigError("optuna-dashboard is not installed; `make extras EXTRAS=dashboard` installs it") from None
    storage = connect(place)
    try:
        _say(f"dashboard of {place.shown}: http://{host}:{port}/ (Ctrl-C ends it)", 0)
        run_server(storage, host=host, port=port)
    finally:
        disconnect(storage)


def _say(text: object, exit_code: int) -> int:
    sys.stderr.write(f"{text}\n")
    return exit_code


if __name__ == "__main__":
    outlive_readers()
    sys.exit(main())
