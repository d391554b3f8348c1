"""The whole suite in several sessions side by side: python -m tests.parallel N [pytest's arguments].

Most tests wait for processes, so two cores do in less than two thirds of the time what one session needs. The output of
each session follows that of the one before; the last line sums them up as pytest would.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

_COUNT = re.compile(r"(\d+) (failed|passed|skipped|deselected|xfailed|xpassed|warning|error)")


def main(arguments: list[str]) -> int:
    """Runs the command line; returns 0 when every session does."""
    began, n_parts, prefix = time.monotonic(), int(arguments[0]), own_shared_memory()
    with tempfile.TemporaryDirectory(prefix="tests-") as folder:
        outputs = [Path(folder, str(part)) for part in range(1, n_parts + 1)]
        sessions = []
        for part, output in enumerate(outputs, start=1):
            command = [*prefix, sys.executable, "-m", "pytest", f"--part={part}/{n_parts}", *arguments[1:]]
            with output.open("wb") as file:
                sessions.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT))
        codes = []
        for session, output in zip(sessions, outputs, strict=True):
            codes.append(session.wait())
            print(output.read_text(errors="replace"), flush=True)
        print(closing_line([output.read_text(errors="replace") for output in outputs], time.monotonic() - began))
    return 1 if any(codes) else 0


def own_shared_memory() -> list[str]:
    """What to put before a command that it has a /dev/shm of its own; nothing where that may not be made.

    The guards of one session would take for a leak what a process of another, killed on purpose, leaves for a moment.
    """
    prefix = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"]
    if shutil.which("unshare") is None:
        return []
    works = subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    return prefix if works else []


def closing_line(outputs: list[str], seconds: float) -> str:
    """The closing lines of all sessions as one."""
    counts: Counter[str] = Counter()
    for output in outputs:
        last = output.rstrip().rpartition("\n")[2]
        counts.update({name: int(n) for n, name in _COUNT.findall(last)})
    counts.pop("deselected", None)  # by the parts; each item is in one
    said = ", ".join(f"{n} {name}" for name, n in sorted(counts.items())) or "no tests ran"
    return f"{f' {said} in {seconds:.2f}s ({len(outputs)} sessions) ':=^100}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
