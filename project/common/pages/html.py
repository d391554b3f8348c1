"""The parts of a page: HTML, every text escaped."""

import os
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from project.common.files.secrets import mask_text

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; background: #f3f5f7; margin: 0; }
main { max-width: 1360px; margin: 0 auto; padding: 24px; }
section { background: #fff; border: 1px solid #e1e6eb; border-radius: 8px; padding: 16px 20px; margin: 0 0 16px; }
h1 { font-size: 24px; margin: 0 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0 0 8px; overflow-wrap: anywhere; }
p { margin: 0 0 8px; }
.quiet, th { color: #5b6773; }
.badge { display: inline-block; border-radius: 10px; padding: 0 9px; margin-right: 6px; color: #fff; font-size: 13px; }
.badge.waiting { color: #1f2933; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(520px, 1fr)); gap: 0 32px; align-items: start; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(480px, 100%), 1fr)); gap: 0 16px; }
.plots > section { min-width: 0; }
summary { cursor: pointer; }
.plot { overflow-x: auto; }
.scroll { overflow: auto; max-height: 640px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 600; position: sticky; top: 0; background: #fff; white-space: nowrap; }
th[onclick] { cursor: pointer; }
td { max-width: 360px; }
td, th { padding: 4px 14px 4px 0; border-bottom: 1px solid #edf0f3; vertical-align: top; overflow-wrap: anywhere; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th.number { text-align: right; }
td.short { white-space: nowrap; }
tr.best td { background: #e9f6ef; }
.facts th { width: 1%; }
pre { background: #f6f8fa; padding: 8px 12px; border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; }
pre, code { font: 13px/1.45 ui-monospace, monospace; margin: 0; }
a { color: #1c62b9; text-decoration: none; }
a:hover { text-decoration: underline; }
"""

# Sorts a table by the column whose head is clicked; numbers as numbers.
_SCRIPT = """
function sortBy(head) {
  const body = head.closest("table").tBodies[0], column = head.cellIndex;
  const up = head.dataset.up = head.dataset.up === "1" ? "" : "1";
  const key = row => row.cells[column].dataset.key ?? row.cells[column].textContent;
  const compare = (a, b) => {
    const x = key(a), y = key(b);
    if (x === "" || y === "") return (x === "") - (y === "");
    const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
    return up ? order : -order;
  };
  body.append(...[...body.rows].sort(compare));
}
"""


def page(title: str, sections: Iterable[str], *, library: str) -> str:
    """The whole page.

    Args:
        library: The text of plotly.js.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>{escaped(title)}</title>\n<style>{_STYLE}</style>\n<script>{library}</script>\n"
        f"<script>{_SCRIPT}</script>\n</head>\n<body>\n<main>\n" + "\n".join(sections) + "\n</main>\n</body>\n</html>\n"
    )


def section(title: str, content: str, *, note: str = "") -> str:
    """A part of the page."""
    quiet = f'<p class="quiet">{escaped(note)}</p>\n' if note else ""
    return f"<section>\n<h2>{escaped(title)}</h2>\n{quiet}{content}\n</section>"


def table(head: str, rows: Sequence[str]) -> str:
    """A table that scrolls within the page; both arguments are HTML rows."""
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>\n' + "\n".join(rows) + "\n</tbody></table></div>"


def facts_table(facts: Iterable[tuple[str, str]]) -> str:
    """A row per name and its value, which is HTML."""
    return (
        '<table class="facts"><tbody>'
        + "".join(f"<tr><th>{escaped(name)}</th><td>{value}</td></tr>" for name, value in facts)
        + "</tbody></table>"
    )


def link(path: Path | None, html: str, page_dir: Path) -> str:
    """The HTML as a link to a file, relative to where the page lies; without one if the file is not there."""
    if path is None or not path.exists():
        return html
    return f'<a href="{escape(quote(os.path.relpath(path, page_dir)))}">{html}</a>'


def escaped(value: Any) -> str:
    """Text as it may stand in a page: no markup, no secrets."""
    return escape(mask_text(str(value)))
