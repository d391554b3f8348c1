"""The configuration as a tree."""

from rich.console import Console

from project.common.config_tree import config_tree


def test_shows_every_value_as_it_is_typed_and_no_secret() -> None:
    console = Console(record=True, width=80)
    config = {"a": {"b": None, "c": True, "[red]": "[bold]x"}, "empty": {}, "api_key": "hidden"}

    with console.capture() as shown:
        console.print(config_tree(config))

    assert [line.strip("│├─└ ") for line in shown.get().splitlines()] == [
        *("configuration", "a", "b: null", "c: true", "[red]: [bold]x", "empty: {}", "api_key: ***"),
    ]
