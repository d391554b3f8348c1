"""Parts of a file that only the template, or only one task, has: they stand between two marks."""

import re

# `# begin template` ... `# end template`, `<!-- begin task digits -->` ... `<!-- end task digits -->`
_PART = re.compile(
    r"^[^\n\w]*begin (template|task (\w+))[^\n\w]*\n(.*?)^[^\n\w]*end \1[^\n\w]*\n", re.DOTALL | re.MULTILINE
)
# A line that ends so: `| a | b | <!-- task digits -->`
_LINE = re.compile(r"^(.*?) *<!-- (?:template|task (\w+)) -->\n", re.MULTILINE)


def keep_parts(name: str, text: str, task: str) -> str:
    """Returns the text of the file without the template's parts, those of other tasks, and without the marks."""
    kept = _PART.sub(lambda part: part[3] if part[2] == task else "", text)
    kept = _LINE.sub(lambda line: f"{line[1]}\n" if line[2] == task else "", kept)
    return re.sub(r"\n{3,}", "\n\n", kept) if name.endswith(".md") else kept
