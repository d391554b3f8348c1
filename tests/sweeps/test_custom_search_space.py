"""A function of the user's adds what only some trials have."""

import pytest

from project.common.errors import ConfigError
from project.common.whitelist import ALLOW_VARIABLE
from project.sweeps.search.search_space import read_search_space
from tests.helpers import search_spaces
from tests.helpers.search_spaces import job, sampled

pytestmark = pytest.mark.usefixtures("composing")


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_VARIABLE, search_spaces.ALLOWED)


def test_a_custom_search_space_adds_what_only_some_trials_have() -> None:
    custom = f"{search_spaces.__name__}.suggest_width"
    for model, names in (("a", ["model"]), ("b", ["model", "model.width"])):
        space = read_search_space({}, [f"model=choice({model})"], custom_search_space=custom)

        params = sampled(space, {"narrowest": 8})
        assert list(params) == names
        assert job(space.overrides(params))["model"].get("width") == (8 if model == "b" else None)


def test_a_string_of_a_custom_search_space_arrives_as_it_is() -> None:
    space = read_search_space({}, [], custom_search_space=f"{search_spaces.__name__}.suggest_name")

    assert job(space.overrides(sampled(space)))["name"] == "it's ${y}"


@pytest.mark.parametrize("given", ["name=fixed", "+name=fixed", "++name=choice(a,b)"])
def test_a_key_that_is_fixed_or_searched_already_is_refused(given: str) -> None:
    space = read_search_space({}, [given], custom_search_space=f"{search_spaces.__name__}.suggest_name")

    with pytest.raises(ConfigError, match=r"^name: is searched as 'name', and is also given as"):
        sampled(space)


def test_a_custom_search_space_that_may_not_be_called_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hydra\.sweeper\.custom_search_space: 'os\.system' may not be called"):
        read_search_space({}, [], custom_search_space="os.system")
