"""Messages of user interfaces in twelve languages: Django's translation catalogues, which need no download."""

import gettext
from collections.abc import Iterator, Sequence
from pathlib import Path

from project.tasks.packages import package_dir
from project.tasks.splits import normalise

LANGUAGES = ("cs", "da", "de", "es", "fi", "fr", "it", "nl", "pl", "pt", "sv", "tr")


def load_messages(
    *, languages: Sequence[str] = LANGUAGES, min_chars: int = 12, package: str = "django"
) -> list[dict[str, str]]:
    """Returns one row per language and translated message: `text`, `label` (the language) and `group`.

    `group` is the normalised source message. It is the same in all languages and for all plural forms of a message,
    so a split by it keeps the translations of one message together. Messages that equal their source but for case and
    punctuation are left out: they are not translated. The package is found, never imported.

    Args:
        languages: folder names under `locale/`.
        min_chars: shorter messages are left out; they are mostly names.
        package: the installed package whose `locale` folders are read.

    Raises:
        ValueError: the package is not installed, or has no catalogues in a language.
    """
    root = package_dir(package)
    catalogues = _find_catalogues(root)
    unknown = [language for language in languages if language not in catalogues]
    if unknown or not languages:
        raise ValueError(
            f"languages: {package} has no catalogues in {', '.join(unknown) or 'no language at all'}; "
            f"there are {', '.join(sorted(catalogues)) or 'none'}"
        )
    return [
        row
        for language in dict.fromkeys(languages)
        for row in _rows(catalogues[language], language=language, min_chars=min_chars)
    ]


def _find_catalogues(root: Path) -> dict[str, list[Path]]:
    """Returns the compiled catalogues of each language, in an order that no file system can change."""
    catalogues: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("locale/*/LC_MESSAGES/*.mo")):
        catalogues.setdefault(path.parent.parent.name, []).append(path)
    return catalogues


def _rows(paths: Sequence[Path], *, language: str, min_chars: int) -> Iterator[dict[str, str]]:
    seen: set[str] = set()
    for source, text in (pair for path in paths for pair in _translations(path)):
        if len(text) < min_chars or text in seen or normalise(text) == normalise(source):
            continue
        seen.add(text)
        yield {"text": text, "label": language, "group": normalise(source)}


def _translations(path: Path) -> Iterator[tuple[str, str]]:
    """Yields source message and translation, once per plural form; the catalogue's header is left out."""
    with path.open("rb") as file:
        # The public methods translate one message at a time; only this attribute lists them.
        catalogue: dict[str | tuple[str, int], str] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    for key, text in catalogue.items():
        # A plural form's key is (source, form); a context ("month name") stands before the source, ended by \x04.
        source = (key[0] if isinstance(key, tuple) else key).rpartition("\x04")[2]
        if source:
            yield source, " ".join(text.split())
