"""Mains of a test's own, for what must not be done to the session's process server."""

import os
import subprocess
import sys
import textwrap

from tests.helpers.tree import ROOT

# A main of its own: the session's server must stay as it is. `%s` are module names to preload.
MAIN = """
import json, os, sys, time
from project.common.processes import process_server
from project.common.errors import ProcessServerError

def report():
    try:
        return process_server.wait_until_ready()
    except ProcessServerError as error:
        return {"error": str(error)}

process_server.start(%r)
print("server", process_server.pid(), flush=True)
"""


def run_main(body: str, preload: tuple[str, ...] = (), **environ: str) -> list[str]:
    """Lines that a main prints which starts a server and then does `body`."""
    return run(body, preload, **environ).stdout.splitlines()[1:]


def run(body: str, preload: tuple[str, ...] = (), **environ: str) -> "subprocess.CompletedProcess[str]":
    """What became of a main that starts a server and then does `body`."""
    code = MAIN % (preload,) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env=os.environ | environ,
        check=True,
    )
