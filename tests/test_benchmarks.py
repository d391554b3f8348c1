"""The benchmark's own pieces: what it concludes, and that it fails where it must. Nothing is timed here."""

import json
from pathlib import Path
from typing import Any

import pytest

from project.common.process_registry import ProcessRecord
from project.common.processes.identity import Identity, ProcessKey, Role
from benchmarks import startup
from benchmarks.measure import BenchmarkError, Place, first_batch_s, medians, require_method
from benchmarks.startup import Benchmark, bare_settings, measure_all
from benchmarks.table import Row, machine, print_table, write_results

FACTS = {"cores": 2, "memory_gb": 8, "load": 0.1, "versions": {}}


def record(role: Role, history: list[tuple[str, float]], **place: Any) -> ProcessRecord:
    return ProcessRecord(
        key=ProcessKey.own(), identity=Identity(role=role, **place), parent_pid=1, started=0.0, history=history
    )


@pytest.mark.parametrize(
    ("value", "aim", "at_least", "is_ok"),
    [(1.0, 1.0, False, True), (1.1, 1.0, False, False), (39.0, 40, True, False), (41.0, 40, True, True)],
)
def test_a_row_says_whether_its_aim_is_met(value: float, aim: float, at_least: bool, is_ok: bool) -> None:
    row = Row(what="x", value=value, unit="s", aim=aim, at_least=at_least)

    assert row.is_ok is is_ok
    assert ("ok" in row.as_texts()) is is_ok


def test_a_row_without_an_aim_cannot_miss_it() -> None:
    assert Row(what="x", value=9.0, unit="MB").is_ok


def test_the_first_batch_is_that_of_the_slowest_rank_and_the_start_that_of_the_trial() -> None:
    records = [
        record(Role.MAIN, [("starting", 1.0), ("supervising", 2.0)]),
        record(Role.RANK, [("starting", 2.5), ("waiting for data", 3.0), ("training", 4.0), ("training", 9.0)], rank=0),
        record(Role.RANK, [("starting", 2.5), ("training", 4.5)], rank=1),
    ]

    assert first_batch_s(records) == 2.5


def test_a_rank_without_a_first_batch_is_an_error_that_names_it() -> None:
    records = [
        record(Role.MAIN, [("supervising", 2.0)]),
        record(Role.RANK, [("waiting for data", 3.0)], rank=1),
    ]

    with pytest.raises(BenchmarkError, match="rank1 was never in the state 'training'"):
        first_batch_s(records)


@pytest.mark.parametrize(
    "outcome",
    [
        {"start_method": "spawn", "fallback": "the server is unclean"},
        {"start_method": "forkserver", "fallback": "the server is unclean"},
    ],
)
def test_a_fallback_to_spawn_is_no_measurement(outcome: dict[str, Any]) -> None:
    with pytest.raises(BenchmarkError, match="the server is unclean"):
        require_method(outcome, "forkserver")


def test_spawn_that_was_wished_for_is_no_fallback() -> None:
    require_method({"start_method": "spawn", "fallback": None}, "spawn")


def test_medians_are_taken_for_each_value() -> None:
    assert medians([{"a": 1.0, "b": 5.0}, {"a": 9.0, "b": 6.0}, {"a": 2.0, "b": 7.0}]) == {"a": 2.0, "b": 6.0}


def test_a_command_that_fails_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="exit code 3\nout of luck"):
        Place(folder=tmp_path).python("-c", "import sys; print('out of luck'); sys.exit(3)")


def test_commands_see_no_folder_of_the_users(tmp_path: Path) -> None:
    code = (
        "import json, os; print(json.dumps([os.getcwd(), os.environ['XDG_STATE_HOME'], os.environ['XDG_CACHE_HOME']]))"
    )

    found = json.loads(Place(folder=tmp_path).output_of("-c", code))

    assert all(path.startswith(str(tmp_path)) for path in found)


class Broken(Benchmark):
    def commands(self) -> list[Row]:
        raise BenchmarkError("no luck")

    def memory(self) -> list[Row]:
        return [Row(what="memory", value=1.0, unit="MB", aim=2.0)]


def test_a_failed_measurement_keeps_the_others_and_is_named(tmp_path: Path) -> None:
    rows, failed = measure_all(Broken(Place(folder=tmp_path), repeats=1), ["commands", "memory"])

    assert [row.what for row in rows] == ["memory"]
    assert str(failed["commands"]) == "no luck"


@pytest.mark.parametrize(("value", "code"), [(1.0, 0), (3.0, 1)])
def test_a_missed_aim_is_the_exit_code(value: float, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(what="memory", value=value, unit="MB", aim=2.0)
    monkeypatch.setattr(Benchmark, "memory", lambda self: [row])

    assert startup.main(["--only", "memory"]) == code


def test_a_failed_measurement_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Benchmark, "commands", Broken.commands)

    assert startup.main(["--only", "commands"]) == 1


def test_the_table_shows_value_aim_and_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Row(what="first batch", value=2.0, unit="s", aim=1.0, detail="of two ranks")], FACTS)

    (line,) = [line for line in capsys.readouterr().out.splitlines() if "first batch" in line]
    for text in ("2 s", "at most 1 s", "MISSED", "of two ranks"):
        assert text in line


def test_results_say_when_where_and_whether(tmp_path: Path) -> None:
    path = tmp_path / "results" / "startup.json"

    write_results(path, [Row(what="x", value=2.0, unit="s", aim=1.0)], FACTS)

    written = json.loads(path.read_text())
    assert written["cores"] == 2
    assert len(written["date"]) == len("2000-01-01")
    assert [row["ok"] for row in written["rows"]] == [False]


def test_the_facts_of_the_machine_neither_name_it_nor_hold_paths() -> None:
    facts = machine()

    assert set(facts) == {"cores", "memory_gb", "load", "versions"}
    assert "/" not in json.dumps(facts)


def test_the_bare_script_gets_the_numbers_of_the_default_task() -> None:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(startup.ROOT / "conf")):
        config: Any = OmegaConf.to_container(compose("config", overrides=["task=language_id"]))

    settings = bare_settings(config)

    assert settings["batch_size"] == config["loader"]["batch_size"]
    assert settings["optimizer"]["lr"] == config["task"]["optimizer"]["lr"]
    assert config["task"]["scheduler"]["_target_"] == "transformers.get_cosine_schedule_with_warmup"
    assert config["task"]["optimizer"]["_target_"] == "torch.optim.AdamW"
    assert config["task"]["model"]["_target_"] == "project.tasks.models.text_classifier"


@pytest.mark.slow
def test_every_process_of_the_probed_tree_says_what_it_holds(tmp_path: Path) -> None:
    benchmark = Benchmark(Place(folder=tmp_path), repeats=1)

    found = benchmark._probe("forkserver")

    assert {f"{role}.uss" for role in ("trial", "rank", "worker")} < found.keys()
    assert 0 < found["worker.uss"] < 200
    assert found["rank.build_s"] > 0
