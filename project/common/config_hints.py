"""What was probably meant by a key or choice that Hydra does not know, and what there is instead."""

from collections.abc import Iterable

from project.common.signatures import suggest

_MOST_NAMES = 25  # more than that nobody reads


def hint(error: BaseException | None) -> str | None:
    """Returns a line to show below the error of Hydra's composition; None where there is nothing to add."""
    from hydra.errors import ConfigCompositionException, MissingConfigException
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(error, MissingConfigException):
        group, _, choice = (error.missing_cfg_file or "").rpartition("/")
        return suggest(choice, error.options) if error.options and choice else _of_groups(f"{group}/{choice}")
    cause = error.__cause__ if isinstance(error, ConfigCompositionException) else None
    if not isinstance(cause, OmegaConfBaseException) or cause.key is None:
        return None
    if "/" in (key := str(cause.key)):
        return _of_groups(key)
    return _of_names(key, _names_beside(cause))


def _names_beside(error: object) -> list[str]:
    parent = getattr(error, "parent_node", None)
    return [str(name) for name in parent] if hasattr(parent, "keys") else []  # type: ignore[union-attr]


def _of_groups(name: str) -> str:
    from project.common.config_files import groups

    text = _of_names(name.strip("/"), [group.name for group in groups()])
    return f"groups: {text}; `python -m project.config` shows them"


def _of_names(name: str, names: Iterable[str]) -> str | None:
    known = list(names)
    if not known:
        return None
    text = suggest(name, known)
    return text if len(known) <= _MOST_NAMES else text.partition("? there are")[0] + "?" if "did you" in text else None
