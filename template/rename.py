"""Gives the package another name wherever the word means the package, and nowhere else.

The word stands for other things too: W&B has projects, prose speaks of them. So it is renamed by what stands around it.
tests/template/test_rename.py has an example of each kind, and lists what is left.
"""

import re

OLD = "project"
_DOTTED = r"(?:(?<=pkg://)|(?<=mypy-)|(?<![\w./-]))project(?=\\?\.[A-Za-z_*{])"
_PATH = r"(?<![\w./-])project(?=/)"
_STATE_FOLDER = r"(?:(?<=\.cache/)|(?<=_HOME/))project\b"
_NAMES = (
    # console scripts, plugins, semaphores, wheels
    r"(?:(?<=sem\.)|(?<=sem\\\.)|(?<![\w./-]))project(?=-(?:train|eval|predict|export|config|ps|graph|report|launcher|sweeper|\*|\{|\|))"
)
# In the path of a socket, whose length is limited.
_SOCKETS = r"(?<![\w./-])project(?=-tree-)"
_EXTRA = r"(?<=[' ])project(?=\\?\[)"  # pip install 'project[postgres]'
_CODE = r"(?<=`)project(?=`)"
_IMPORT = r"(?:(?<=^import )|(?<=\bfrom )|(?<=; import ))project(?=\n| import |$)|(?<=^    import )project$"
_MODULE = r"(?<![\w.\"'`])project(?=\.__)"
_QUOTED = r"(?<!get\([\"'])(?<=[\"'])project(?=[\"'](?![:\]]))"  # not a key: {"project": ...}, x["project"]
_TITLE = r"(?<=[\"'])project(?=: |:[\"'])"  # of a process: "project: server"
_VARIABLE = r"\bPROJECT_(?=[A-Z])"

_EVERYWHERE = (_DOTTED, _PATH, _STATE_FOLDER, _NAMES, _EXTRA, _CODE)
_BY_KIND = {
    ".py": (_IMPORT, _MODULE, _QUOTED, _TITLE),
    ".md": (_IMPORT,),
    ".cfg": (r"^project(?= = )|(?<=^    )project(?= = |$)|(?<= = )project$",),
    ".yml": (r"(?<=^name: )project$", r"(?<=activate )project\b"),
    "Makefile": (r'(?<=mypy" )project(?= )',),
}


def rename(name: str, text: str, package: str) -> str:
    """Returns the text of the file `name` (as it is called in the template) with the package's new name."""
    kind = next((kind for kind in _BY_KIND if name.endswith(kind)), "")
    for pattern in (*_EVERYWHERE, *_BY_KIND.get(kind, ())):
        text = re.sub(pattern, package, text, flags=re.MULTILINE)
    text = re.sub(_SOCKETS, package[:10].rstrip("_"), text)
    return re.sub(_VARIABLE, f"{package.upper()}_", text)


def rename_path(name: str, package: str) -> str:
    """Returns where the file lies in the generated project."""
    first, _, rest = name.partition("/")
    return f"{package}/{rest}" if first == OLD and rest else name
