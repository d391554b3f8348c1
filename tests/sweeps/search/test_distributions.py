"""Our reading of sweeps beside that of hydra-optuna-sweeper: equal where it is right, named where it is not."""

from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra_plugins.hydra_optuna_sweeper._impl import create_optuna_distribution_from_override as upstream
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from project.sweeps.search.distributions import distribution_of


def parse(text: str) -> Override:
    return OverridesParser.create().parse_overrides([f"key={text}"])[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("choice(1,2)", CategoricalDistribution([1, 2])),
        ("choice(true,false)", CategoricalDistribution([True, False])),
        ("choice('hello','world')", CategoricalDistribution(["hello", "world"])),
        ("a,2,1.5,true", CategoricalDistribution(["a", 2, 1.5, True])),
        ("choice([1,2],[a])", CategoricalDistribution(["[1,2]", "[a]"])),
        ("range(1,3)", IntDistribution(1, 2)),
        ("range(10,1,-3)", IntDistribution(4, 10, step=3)),
        ("range(0,1,0.25)", FloatDistribution(0, 0.75, step=0.25)),
        ("range(1,0,-0.5)", FloatDistribution(0.5, 1, step=0.5)),
        ("int(range(0,1.5,0.5))", CategoricalDistribution([0, 1])),
        ("interval(1,5)", FloatDistribution(1, 5)),
        ("int(interval(1,5))", IntDistribution(1, 5)),
        ("int(interval(1.5,5.9))", IntDistribution(1, 5)),
        ("interval(-0.5,0.5)", FloatDistribution(-0.5, 0.5)),
        ("tag(log,interval(0.01,1))", FloatDistribution(0.01, 1, log=True)),
        ("tag(log,int(interval(1,100)))", IntDistribution(1, 100, log=True)),
    ],
)
def test_what_upstream_reads_rightly_is_read_alike(text: str, expected: Any) -> None:
    ours, _ = distribution_of(parse(text))

    assert ours == expected
    if text.startswith("int(range"):  # it has both 0.0 and 0.5 as 0, and takes it twice
        assert upstream(parse(text)) == CategoricalDistribution([0, 0, 1])
    else:
        assert upstream(parse(text)) == expected


@pytest.mark.parametrize(
    ("text", "ours", "theirs"),
    [
        ("'a b','c'", ("a b", "c"), ("'a b'", "'c'")),
        ("null,1", (None, 1), ("null", 1)),
        ("[null],1", ("[null]", 1), ("[null]", 1)),
        ("[a,'b'],1", ("[a,b]", 1), ("[a,'b']", 1)),
        ("a,a,b", ("a", "b"), ("a", "a", "b")),
    ],
)
def test_what_upstream_changes_stays_as_typed(text: str, ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    assert distribution_of(parse(text))[0].choices == ours  # type: ignore[attr-defined]
    assert upstream(parse(text)).choices == theirs


@pytest.mark.parametrize("text", ["shuffle(range(1,40))", "shuffle(choice(5,3,9,1))"])
def test_a_shuffle_gives_the_same_choices_in_every_process(text: str) -> None:
    """Upstream shuffles anew each time; a study takes no other order of choices when it goes on."""
    ours = [distribution_of(parse(text))[0] for _ in range(5)]

    assert all(one == ours[0] for one in ours)
    assert sorted(ours[0].choices) == sorted(upstream(parse(text)).choices)  # type: ignore[attr-defined]


def test_lists_and_dicts_are_kept_by_their_texts() -> None:
    _, structures = distribution_of(parse("choice([1, 'a b'], {k: null}, '[1]')"))

    assert structures == {"[1,'a b']": [1, "a b"], "{k:null}": {"k": None}}
