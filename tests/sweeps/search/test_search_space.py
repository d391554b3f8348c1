"""What is typed as a search space arrives in the jobs, with its types; what cannot be searched is refused."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from project.common.errors import ConfigError
from project.sweeps.search.search_space import changes, read_search_space
from tests.helpers.search_spaces import choices, job, jobs, sampled

pytestmark = pytest.mark.usefixtures("composing")

STRINGS = (
    *("a,b", "k=v", "f(x)", "{a}", "it's", "#1", "a&b", "é", "[1]", "1", "true", "null", "a b", "a:b", "a/b", ""),
    *(
        '"',
        "\\",
        "a\\",
        "\\'",
        "a\\\\'b",
        "None",
        "1e3",
        "-1",
        "inf",
        "two\nlines",
        "tab\there",
        " padded ",
        "~",
        "+x=1",
    ),
    *("$y", "{a:1}", "choice(1,2)", "名前", "🙂", "%s", "!x", "*", "a" * 5000),
)


def quoted(text: str, quote: str) -> str:
    """As one types a string within quotes."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text, Quote[quote]).with_quotes()


@pytest.mark.case("23")
@pytest.mark.parametrize("form", ["choice({},plain)", "{},plain", "sort(choice({},plain))", "shuffle({},plain)"])
@pytest.mark.parametrize("quote", ["single", "double"])
def test_every_quoted_string_is_a_choice_without_its_quotes(quote: str, form: str) -> None:
    for text in STRINGS:
        space = read_search_space({}, ["name=" + form.format(quoted(text, quote))])

        assert sorted(choices(space, "name")) == sorted([text, "plain"])


@pytest.mark.case("23")
@pytest.mark.parametrize("text", STRINGS, ids=lambda text: repr(text[:20]))
def test_every_string_arrives_in_the_job(text: str) -> None:
    space = read_search_space({}, [f"name=choice({quoted(text, 'double')},plain)"])

    assert job(space.overrides({"name": text}))["name"] == text


@pytest.mark.case("23")
def test_every_string_comes_back_from_a_database(tmp_path: Path) -> None:
    import optuna

    texts = [*STRINGS, "\x00", "\udc80", "${y}"]
    space = read_search_space({"name": f"choice({','.join(quoted(text, 'single') for text in texts)})"}, [])
    grid = optuna.samplers.GridSampler({"name": texts})
    for n_trials in (len(texts), 0):
        storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/study.db")
        study = optuna.create_study(storage=storage, study_name="s", sampler=grid, load_if_exists=True)
        for _ in range(n_trials):
            space.suggest(study.ask())
        trials = study.trials
        storage.engine.dispose()

    assert sorted(trial.params["name"] for trial in trials) == sorted(texts)
    assert trials[0].distributions == space.distributions


@pytest.mark.case("23")
def test_an_interpolation_is_one_and_an_escaped_one_is_none() -> None:
    space = read_search_space({}, ["name=choice('${y}', \\${y}, a/${y})"])

    assert [seen["name"] for seen in jobs(space, "name")] == ["of y", "${y}", "a/of y"]


@pytest.mark.case("66")
@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("x=choice(null,1)", [None, 1]),
        ("x=null,1", [None, 1]),
        ("x=choice('null',null,None)", ["null", None, "None"]),
        ("x=choice(true,false)", [True, False]),
        ("x=choice(1,1.5,-2,'1',true-ish)", [1, 1.5, -2, "1", "true-ish"]),
        ("x=1,2,3", [1, 2, 3]),
        ("x=choice([1,2],[3],[])", [[1, 2], [3], []]),
        ("x=choice([1],[1.0],[true],['1'],[null])", [[1], [1.0], [True], ["1"], [None]]),
        ("x=choice([a,'b c'],['${y}',\\[])", [["a", "b c"], ["of y", "["]]),
        ("x=choice({a:1},{b:2,c:[d]},{})", [{"a": 1}, {"b": 2, "c": ["d"]}, {}]),
        ("x=choice([1,2],'[1, 2]',{a:1},1)", [[1, 2], "[1, 2]", {"a": 1}, 1]),
        ("x=str(choice(1,2))", ["1", "2"]),
        ("x=float(choice(1,2))", [1.0, 2.0]),
        ("x=sort(choice(3,1,2))", [1, 2, 3]),
        ("x=int(range(0,2,0.5))", [0, 1]),
        ("x=shuffle(range(1,4))", [1, 2, 3]),
        ("x=float(range(1,3))", [1.0, 2.0]),
        ("x=choice(1)", [1]),
        ("x=a,a,b", ["a", "b"]),
        ("layers=choice([1,2],[3])", [[1, 2], [3]]),
        ("++x=choice(1,null)", [1, None]),
        ("+new=choice([1],a)", [[1], "a"]),
        ("+open.more=choice('a b',1)", ["a b", 1]),
        ("x=tag(any,choice(1,2))", [1, 2]),
    ],
)
def test_choices_arrive_with_their_types(override: str, expected: list[Any]) -> None:
    space = read_search_space({}, [override])

    (key,) = space.distributions
    seen = jobs(space, key)
    for part in key.lstrip("+").split("."):
        seen = [config[part] for config in seen]
    assert repr(seen) == repr(expected)
    assert [space.typed(key, choice) for choice in choices(space, key)] == expected or "${y}" in override


@pytest.mark.case("66")
def test_choices_of_a_group_choose_its_files() -> None:
    space = read_search_space({}, ["model=choice(a,'b')", "+extra=small,large"])

    params = {"model": "b", "+extra": "large"}
    assert job(space.overrides(params)) == job(["model=b", "+extra=large"])
    assert job(space.overrides(params))["model"] == {"kind": "B", "width": 3}


def test_glob_means_the_files_of_a_group() -> None:
    from hydra.core.global_hydra import GlobalHydra

    space = read_search_space({}, ["model=glob(*)"], config_loader=GlobalHydra.instance().config_loader())

    assert [seen["model"]["kind"] for seen in jobs(space, "model")] == ["A", "B"]


def test_numbers_that_are_not_choices_arrive_as_what_they_are() -> None:
    space = read_search_space({"x": "int(interval(1, 5))", "y": "tag(log, interval(1e-5, 1))"}, ["name=range(1,9,2)"])

    seen = job(space.overrides(sampled(space)))
    assert type(seen["x"]) is int
    assert type(seen["y"]) is float
    assert seen["name"] in (1, 3, 5, 7)


def test_fixed_overrides_stay_as_typed() -> None:
    given = ["~model", "+open.b=[1, 'x']", "name='${y}'", "x=", "++z={a: 1}", "hydra.job.name=j"]
    space = read_search_space({}, given)

    assert space.fixed == tuple(given)
    assert space.overrides({}) == tuple(given)
    assert job(space.fixed[:-1])["name"] == "of y"


@pytest.mark.case("66")
def test_the_overrides_survive_a_shell_and_give_the_same_job() -> None:
    space = read_search_space(
        {}, ["name=choice('it\\'s ${y}; \"$HOME\" \\\\','b')", "x=choice([1,'2'],{a:null})", "y=q"]
    )
    for name, choice in (("name", choices(space, "name")[0]), ("x", choices(space, "x")[1])):
        overrides = space.overrides({name: choice})

        assert job(shlex.split(shlex.join(overrides))) == job(overrides)
        assert read_search_space({}, overrides).overrides({}) == overrides


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        (
            "x=choice(1,true,1.0)",
            "x: 'x=choice(1,true,1.0)' cannot be searched: Optuna cannot tell the choices 1 and True",
        ),
        ("x=choice(0,false)", "the choices 0 and False apart, which are equal; leave one out"),
        ("x=choice(0.0,-0.0)", "x: "),
        ("x=choice([1,2],'[1,2]')", "x: "),
        ("x=choice('???',1)", "x: 'x=choice('???',1)' cannot be searched: '???' stands for a missing value"),
        ("x=tag(log, interval(0, 1))", "x: .*must hold for `log=True`"),
        ("x=tag(lgo, interval(1, 2))", "x: .*the tag lgo means nothing"),
        ("x=interval(2, 1)", "x: .*must hold"),
        ("x=interval(0, inf)", "x: .*both ends must be finite"),
        ("x=interval(nan, 1)", "x: .*both ends must be finite"),
        ("x=range(3, 1)", "x: .*at least one value"),
        ("x=range(0, 1, 0)", "x: .*"),
        ("x=range(0, 1.5, 0)", "x: .*"),
        ("model=glob(*)", "model: .*ConfigLoader"),
    ],
)
def test_what_optuna_cannot_search_is_refused_by_its_key(override: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("(", r"\(").replace(")", r"\)").replace("???", r"\?\?\?")):
        read_search_space({}, [override])


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        read_search_space({"x": "interval(2, 1)"}, ["y=choice(1,true)", "z=range(0, 0)"])

    assert [problem.partition(":")[0] for problem in raised.value.problems] == ["x", "y", "z"]


def test_a_study_with_other_choices_is_refused_by_the_key() -> None:
    import optuna

    study = optuna.create_study()
    read_search_space({}, ["x=choice(1,2)"]).suggest(study.ask())

    with pytest.raises(ConfigError, match=r"^x: does not fit what the study has .*dynamic value space"):
        read_search_space({}, ["x=choice(1,2,3)"]).suggest(study.ask())


def test_an_enqueued_point_outside_the_space_is_refused_by_the_key() -> None:
    import optuna

    study = optuna.create_study()
    study.enqueue_trial({"x": 7})

    with pytest.raises(ConfigError, match=r"^x: does not fit what the study has"):
        read_search_space({}, ["x=choice(1,2)"]).suggest(study.ask())


def test_changes_are_told_as_one_would_type_them() -> None:
    old = read_search_space({"lr": "tag(log, interval(0.1, 1))", "gone": "1,2", "same": "range(0, 1, 0.25)"}, ["a=1"])
    new = read_search_space(
        {"lr": "interval(0.1, 2)", "same": "range(0, 1, 0.25)", "new": "choice([1],'1')"}, ["a=2", "~b"]
    )

    assert changes(old.as_plain(), new.as_plain()) == [
        "lr: tag(log, interval(0.1, 1.0)) → interval(0.1, 2.0)",
        "gone: choice(1, 2) → no longer searched",
        "new: not searched → choice([1], '1')",
        "a: a=1 → a=2",
        "~b: not given → ~b",
    ]
    assert changes(new.as_plain(), new.as_plain()) == []


@pytest.mark.parametrize(
    "text",
    [
        "interval(0.1, 2.0)",
        "int(interval(1, 5))",
        "tag(log, int(interval(1, 5)))",
        "range(1, 11, 3)",
        "range(0.1, 0.7, 0.2)",
    ],
)
def test_the_text_of_a_distribution_gives_the_same_distribution(text: str) -> None:
    space = read_search_space({"x": text}, [])
    again = read_search_space(space.as_plain()["searched"], [])

    assert again.distributions == space.distributions


def test_the_plain_form_keeps_no_secret() -> None:
    assert read_search_space({}, ["+api_key=abc"]).as_plain()["fixed"] == ["+api_key=***"]
