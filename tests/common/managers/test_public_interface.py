"""The public functions, as a script, a thread or a notebook calls them."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from omegaconf import OmegaConf

from project.common import managers
from project.common.errors import ConfigError, NotInitializedError, ProcessBoundaryError
from project.common.processes.identity import Identity, Role, current_identity, set_identity
from project.common.whitelist import ALLOW_VARIABLE
from tests.helpers import managers as doubles
from tests.helpers.managers import config_of

STANDARD = ("directory", "cuda", "tensor", "tokenizer", "data", "batch", "model", "amp", "metrics", "wandb")


@pytest.fixture(autouse=True)
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.setenv(ALLOW_VARIABLE, doubles.ALLOWED)
    doubles.events.clear()
    yield doubles.events
    managers.cleanup_managers()
    set_identity(None)


def test_a_script_without_identity_is_a_rank_until_it_cleans_up() -> None:
    managers.initialize_factory(config_of("ground"))
    during = current_identity()
    managers.cleanup_managers()

    assert during == Identity(role=Role.RANK, rank=0)
    assert current_identity() is None


def test_a_rank_takes_its_number_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    managers.initialize_factory(config_of("ground"))

    assert managers.get_manager("ground").identity.label == "rank3"


def test_an_identity_that_was_given_is_kept() -> None:
    trial = Identity(role=Role.TRIAL, trial=7)
    set_identity(trial)
    managers.initialize_factory(config_of("ground", "roof", "house"))

    assert managers.get_manager("ground").identity == trial
    with pytest.raises(ProcessBoundaryError, match="role trial"):
        managers.get_manager("roof")
    managers.cleanup_managers()
    assert current_identity() == trial


def test_a_role_may_be_chosen_and_is_given_back() -> None:
    trial = Identity(role=Role.TRIAL, trial=7)
    set_identity(trial)
    managers.initialize_factory(config_of("ground"), role="rank")
    during = managers.get_manager("ground").identity
    managers.cleanup_managers()

    assert (during.role, during.trial) == (Role.RANK, 7)
    assert current_identity() == trial


def test_the_same_configuration_again_does_nothing(events: list[str]) -> None:
    config = config_of("ground")
    managers.initialize_factory(config)
    first = managers.get_manager("ground")
    managers.initialize_factory(OmegaConf.create(config))

    assert managers.get_manager("ground") is first


def test_another_configuration_is_refused_and_the_difference_named() -> None:
    managers.initialize_factory(config_of("ground", ground={"depth": 1}))

    with pytest.raises(ConfigError, match=r"cleanup_managers\(\)(?s:.*)managers\.ground\.depth: 2, not 1"):
        managers.initialize_factory(config_of("ground", ground={"depth": 2}))


def test_another_role_is_refused() -> None:
    managers.initialize_factory(config_of("ground"))

    with pytest.raises(ConfigError, match=r"worker was asked for, but rank0 .* as rank"):
        managers.initialize_factory(config_of("ground"), role=Role.WORKER)


def test_an_unknown_role_is_named() -> None:
    with pytest.raises(ConfigError, match=r"role: there is no role 'rnk'; did you mean 'rank'\?"):
        managers.initialize_factory(config_of("ground"), role="rnk")


def test_a_change_of_the_callers_dict_changes_nothing() -> None:
    config = config_of("ground", ground={"depth": 1})
    managers.initialize_factory(config)
    config["managers"]["ground"]["depth"] = 9

    assert managers.get_manager("ground").depth == 1


def test_interpolations_of_a_dictconfig_are_resolved() -> None:
    config = OmegaConf.create({"seed": 4, **config_of("ground", ground={"depth": "${seed}"})})
    managers.initialize_factory(config)

    assert managers.get_manager("ground").depth == 4


def test_a_harmful_configuration_is_refused_before_anything_is_built(events: list[str]) -> None:
    config = config_of("ground") | {"callbacks": {"x": {"_target_": "os.system", "command": "true"}}}

    with pytest.raises(ConfigError, match=r"callbacks\.x\._target_: 'os\.system' may not be called"):
        managers.initialize_factory(config)
    assert events == []


@pytest.mark.parametrize("name", STANDARD)
def test_each_standard_manager_has_a_function_that_says_what_is_missing(name: str) -> None:
    get = getattr(managers, f"get_{name}_manager")

    with pytest.raises(
        NotInitializedError,
        match=rf"managers\.{name}: .*MainProcess \(pid {os.getpid()}\).*initialize_factory\(config\)",
    ):
        get()


def test_a_worker_that_comes_too_early_is_told_its_own_call() -> None:
    set_identity(Identity(role=Role.WORKER, rank=1, worker=2))

    with pytest.raises(NotInitializedError, match=r"in rank1-worker2 .*ensure_process_initialized\(config\)"):
        managers.get_data_manager()


def test_a_second_thread_gets_the_same_instance_and_may_clean_up(events: list[str]) -> None:
    managers.initialize_factory(config_of("house", "ground"))
    seen: list[Any] = []

    def work() -> None:
        seen.append(managers.get_manager("house"))
        managers.cleanup_managers()

    here = managers.get_manager("house")
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)

    assert seen == [here]
    assert events[-2:] == ["close house", "close ground"]


def test_threads_that_initialise_at_once_share_one_container(events: list[str]) -> None:
    config = config_of("slow", "ground")
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait(10)
        managers.initialize_factory(config)
        managers.get_manager("slow")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert events == ["build ground", "build slow"]


def test_cleaning_up_may_be_repeated_and_starting_again_works(events: list[str]) -> None:
    for _ in range(2):
        managers.initialize_factory(config_of("ground"))
        managers.get_manager("ground")
        managers.cleanup_managers()
        managers.cleanup_managers()

    assert events == ["build ground", "close ground"] * 2


def test_clear_memory_asks_the_tensor_manager_only_if_it_exists(events: list[str]) -> None:
    managers.clear_memory()
    managers.initialize_factory(config_of("tensor"))
    managers.clear_memory()
    managers.get_tensor_manager()
    managers.clear_memory()

    assert events == ["clear tensor"]


def test_importing_the_interface_imports_no_manager_and_nothing_heavy() -> None:
    script = (
        "import sys, project.common.managers as m; m.clear_memory();"
        "heavy = {'torch', 'hydra', 'omegaconf'};"
        "print([n for n in sys.modules if n in heavy or n.startswith('project.common.managers.')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "[]"
