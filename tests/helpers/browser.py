"""A headless browser that says what a page became and what its console said."""

import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@dataclass(frozen=True)
class Seen:
    """A page after its scripts ran.

    Args:
        dom: The document as HTML.
        console: What the console said, errors and all else.
    """

    dom: str
    console: list[str]

    def count(self, css_class: str) -> int:
        """Elements of that class."""
        return len(re.findall(rf'class="(?:[^"]* )?{css_class}[ "]', self.dom))


def open_page(file: Path, profile: Path) -> Seen:
    """Opens a file, without any network, and waits until its scripts are done."""
    assert CHROMIUM is not None
    command = [
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-crash-reporter"),
        *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}", "--window-size=1400,4000"),
        *("--virtual-time-budget=30000", "--enable-logging=stderr", "--v=0", "--dump-dom", file.as_uri()),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    ) as browser:
        try:
            dom, messages = browser.communicate(timeout=90)
        finally:
            if browser.poll() is None:
                os.killpg(browser.pid, signal.SIGKILL)
    return Seen(dom, [line for line in messages.splitlines() if "CONSOLE" in line])
