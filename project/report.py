"""Writes one self-contained page on a sweep: python -m project.report SWEEP [--out FILE]."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from project.common.errors import ProjectError
from project.common.processes.outlived_streams import outlive_readers


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m project.report", description=__doc__)
    parser.add_argument("sweep", type=Path, metavar="SWEEP", help="a sweep's folder, sweeps/<study>")
    parser.add_argument("--out", type=Path, metavar="FILE", help="instead of report.html in that folder")
    options = parser.parse_args(arguments)
    from project.sweeps.shown.html_report import write_report

    try:
        print(write_report(options.sweep, options.out))
    except ProjectError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"the report could not be written: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    outlive_readers()
    sys.exit(main())
