import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from project.tasks.language_id import LANGUAGES, load_messages
from project.tasks.splits import normalise, split_by_group

Row = dict[str, str]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return load_messages()


def test_every_language_has_hundreds_of_messages(rows: list[Row]) -> None:
    counts = Counter(row["label"] for row in rows)

    assert tuple(sorted(counts)) == LANGUAGES
    assert all(500 < count < 700 for count in counts.values())


def test_messages_are_long_enough_and_differ_from_their_source(rows: list[Row]) -> None:
    assert all(len(row["text"]) >= 12 for row in rows)
    assert all(normalise(row["text"]) != row["group"] for row in rows)


def test_no_message_comes_twice_in_a_language(rows: list[Row]) -> None:
    assert len({(row["label"], row["text"]) for row in rows}) == len(rows)


def test_a_longer_minimum_leaves_fewer_messages(rows: list[Row]) -> None:
    longer = load_messages(min_chars=40)

    assert 0 < len(longer) < len(rows)
    assert min(len(row["text"]) for row in longer) >= 40


def test_all_plural_forms_of_a_message_share_its_group(rows: list[Row]) -> None:
    forms = {row["text"] for row in rows if row["label"] == "pl" and row["group"] == "minute"}

    assert {"%(num)d minuta", "%(num)d minuty"} <= forms


def test_headers_of_the_catalogues_are_no_messages(rows: list[Row]) -> None:
    assert not [row for row in rows if "Content-Type" in row["text"] or not row["group"]]


def test_messages_of_the_contrib_applications_are_among_them(rows: list[Row]) -> None:
    assert "Passwort wiederholen:" in {row["text"] for row in rows if row["label"] == "de"}


def test_two_readings_give_the_same_rows_in_the_same_order(rows: list[Row]) -> None:
    assert load_messages() == rows


def test_no_message_nor_source_is_in_two_splits(rows: list[Row]) -> None:
    splits = split_by_group(rows, fractions={"train": 0.8, "val": 0.1, "test": 0.1}, seed=0)

    for one, other in combinations(splits.values(), 2):
        assert not {row["group"] for row in one} & {row["group"] for row in other}
        assert not {normalise(row["text"]) for row in one} & {normalise(row["text"]) for row in other}


def test_each_split_holds_its_share_of_each_language(rows: list[Row]) -> None:
    splits = split_by_group(rows, fractions={"train": 0.8, "val": 0.1, "test": 0.1}, seed=0)
    counts = {split: Counter(row["label"] for row in found) for split, found in splits.items()}

    assert len(splits["test"]) / len(rows) == pytest.approx(0.1, abs=0.01)
    assert all(counts["test"][language] > 30 for language in LANGUAGES)


def test_the_package_is_read_without_being_imported() -> None:
    program = "import sys; from project.tasks.language_id import load_messages; load_messages(); print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert not {"django", "torch", "transformers", "sklearn", "numpy"} & set(loaded)


def test_a_language_without_catalogues_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"languages: django has no catalogues in xx; there are .*\bde\b.*\btr\b"):
        load_messages(languages=["de", "xx"])


def test_no_language_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="languages: django has no catalogues in no language at all"):
        load_messages(languages=[])


def test_a_package_that_is_not_installed_is_refused_with_the_cure() -> None:
    with pytest.raises(ValueError, match="package: 'not_there' is not installed; pip install not_there"):
        load_messages(package="not_there")


def test_a_package_without_catalogues_is_refused() -> None:
    with pytest.raises(ValueError, match="languages: json has no catalogues in de; there are none"):
        load_messages(languages=["de"], package="json")


def test_an_empty_package_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_namespace").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(ValueError, match="package: 'a_namespace' is not installed"):
        load_messages(package="a_namespace")
