"""Shows what can be configured: python -m project.config [GROUP [CHOICE]]."""

import argparse
import sys
from collections.abc import Iterable

from project.common.config_files import Group, groups, text_of
from project.common.errors import ConfigError, ProjectError
from project.common.processes.outlived_streams import outlive_readers
from project.common.signatures import suggest

_USAGE = """python train.py [group=choice] [key=value]; * is chosen when nothing is typed, + adds something.
`python -m project.config GROUP` shows a group's default with all its keys; `python train.py --cfg job` the whole."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m project.config", description=__doc__)
    parser.add_argument("group", nargs="?", metavar="GROUP", help="such as managers/amp; none: all of them")
    parser.add_argument("choice", nargs="?", metavar="CHOICE", help="whose file is shown; none: default.yaml")
    options = parser.parse_args(arguments)
    try:
        print("\n".join(_overview() if options.group is None else _group(options.group, options.choice)))
    except ProjectError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _overview() -> Iterable[str]:
    yield _USAGE
    for group in groups():
        yield from ("", *_lines(group))


def _lines(group: Group) -> Iterable[str]:
    yield group.name
    for choice, comment in group.choices.items():
        mark = "*" if choice == group.chosen else "" if group.chosen else "+"
        yield f"  {mark:1} {choice:22} {comment.partition(' python ')[0]}".rstrip()


def _group(name: str, choice: str | None) -> Iterable[str]:
    found = {group.name: group for group in groups()}
    if name not in found:
        raise ConfigError(f"{name}: is no group; {suggest(name, found)}")
    group = found[name]
    wanted = choice or next((it for it in ("default", group.chosen) if it in group.choices), None)
    if wanted is not None and wanted not in group.choices:
        raise ConfigError(f"{name}={wanted}: there is no such choice; {suggest(wanted, group.choices)}")
    shown = () if wanted is None else ("", f"{group.typed(wanted)}:", "", text_of(name, wanted).rstrip())
    return (*_lines(group), *shown)


if __name__ == "__main__":
    outlive_readers()
    sys.exit(main())
