"""Splits rows into train, val and test so that nothing leaks from one into another."""

import logging
import math
import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

log = logging.getLogger(__name__)

Row = dict[str, Any]

# %(name)s, %d and {name} stand for a value, <b> and &nbsp; for layout: none of them is language.
_NOT_LANGUAGE = re.compile(r"%\(\w*\)[-+ #0-9.]*[a-zA-Z]|%[-+#0-9.]*[sdifrxg]\b|\{[^{}\s]*\}|<[^<>]*>|&\w+;")
_NOT_WORD = re.compile(r"[\W\d_]+")


def normalise(text: str) -> str:
    """Returns what two trivially different texts have in common.

    Case, white space, punctuation, digits, placeholders and markup are dropped. A text that is nothing else is
    returned in lower case, so that two such texts stay apart.
    """
    words = _NOT_WORD.sub(" ", _NOT_LANGUAGE.sub(" ", text.casefold())).strip()
    return words or text.casefold().strip()


def split_by_group(rows: Sequence[Row], *, fractions: Mapping[str, float], seed: int) -> dict[str, list[Row]]:
    """Splits rows so that no group and no text, not even a trivially different one, is in two splits.

    Groups that share a text become one. The answer depends on the set of rows and the seed alone: not on the order of
    the rows and not on the hash seed of the process. Within a split the rows keep the order they came in.

    Args:
        rows: each with `text` and `group`, both strings.
        fractions: split name to its share of the rows, adding up to 1; met to within one cluster of groups.
        seed: which of the possible splits.

    Raises:
        ValueError: no rows, a row without `text` or `group`, bad fractions, or a split that would stay empty.
    """
    _check_fractions(fractions)
    _check_rows(rows)
    clusters = _clusters(rows)
    names = sorted(clusters)
    if len(names) < len(rows):
        log.info(
            "split: %d rows form %d groups; rows of one group stay together, and so do texts that differ only in case, "
            "numbers, punctuation, placeholders or markup",
            len(rows),
            len(names),
        )
    random.Random(seed).shuffle(names)
    split_of = _assign({name: len(clusters[name]) for name in names}, fractions=fractions, n_rows=len(rows))
    indices: dict[str, list[int]] = {split: [] for split in fractions}
    for name in names:
        indices[split_of[name]] += clusters[name]
    empty = [split for split, found in indices.items() if not found]
    if empty:
        raise ValueError(f"fractions: no rows left for {', '.join(empty)}; {len(rows)} rows form {len(names)} groups")
    return {split: [rows[index] for index in sorted(found)] for split, found in indices.items()}


def _check_fractions(fractions: Mapping[str, float]) -> None:
    if not fractions:
        raise ValueError("fractions: empty; name at least one split, such as {'train': 1.0}")
    for split, share in fractions.items():
        if not isinstance(share, int | float) or not 0 < share <= 1:
            raise ValueError(f"fractions.{split}: {share!r} is not a share; use a number above 0 and at most 1")
    total = math.fsum(fractions.values())
    if not math.isclose(total, 1.0, abs_tol=1e-6):
        raise ValueError(f"fractions: {dict(fractions)} add up to {total:g}; they must add up to 1")


def _check_rows(rows: Sequence[Row]) -> None:
    if not rows:
        raise ValueError("rows: there are none to split")
    for number, row in enumerate(rows):
        for field in ("text", "group"):
            if not isinstance(row.get(field), str):
                raise ValueError(f"rows[{number}]: no string field '{field}'; fields: {', '.join(sorted(row))}")


def _clusters(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Returns the indices of the rows of each cluster: of groups that are linked by shared texts.

    A cluster is named after its smallest group, whatever order the rows came in.
    """
    parent: dict[str, str] = {row["group"]: row["group"] for row in rows}
    first_group: dict[str, str] = {}
    for row in rows:
        one = _root(parent, row["group"])
        other = _root(parent, first_group.setdefault(normalise(row["text"]), row["group"]))
        parent[max(one, other)] = min(one, other)
    clusters: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        clusters[_root(parent, row["group"])].append(index)
    return clusters


def _root(parent: dict[str, str], group: str) -> str:
    while parent[group] != group:
        parent[group] = parent[parent[group]]
        group = parent[group]
    return group


def _assign(sizes: Mapping[str, int], *, fractions: Mapping[str, float], n_rows: int) -> dict[str, str]:
    """Returns the split of each cluster: in turn, the one that is furthest below its share."""
    missing = {split: share * n_rows for split, share in fractions.items()}
    split_of: dict[str, str] = {}
    for name, size in sizes.items():
        split = max(missing, key=lambda split: missing[split] / fractions[split])
        split_of[name] = split
        missing[split] -= size
    return split_of
