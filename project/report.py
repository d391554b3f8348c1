"""Writes one self-contained page on a run or a sweep: python -m project.report FOLDER [--out FILE]."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from project.common.errors import ConfigError, ProjectError
from project.common.processes.outlived_streams import outlive_readers


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m project.report", description=__doc__)
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="of a run, runs/<name>/…, or a sweep, sweeps/<study>"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="instead of report.html in that folder")
    options = parser.parse_args(arguments)
    try:
        print(_write(options.folder, options.out))
    except ProjectError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"the report could not be written: {error}", file=sys.stderr)
        return 1
    return 0


def _write(folder: Path, out: Path | None) -> Path:
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; name a run's, runs/<name>/…, or a sweep's, sweeps/<study>")
    from project.training.run_report.reading import is_run

    if is_run(folder):
        from project.training.run_report.writing import write_run_report

        return write_run_report(folder, out)
    from project.sweeps.shown.html_report import write_report

    return write_report(folder, out)


if __name__ == "__main__":
    outlive_readers()
    sys.exit(main())
