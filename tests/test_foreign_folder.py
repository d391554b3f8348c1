"""A run folder that somebody else made is data: nothing in it is called, whoever reads it."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from project import ps, report
from project.common.errors import CheckpointError, ConfigError
from project.common.files.checkpoint_file import load_checkpoint_file, save_checkpoint_file
from project.common.files.layout import RunLayout
from project.training.evaluate import evaluate
from tests.helpers.training import ROOT, compose

HARMFUL = {"_target_": "os.system", "command": "touch made"}
PLACES: tuple[tuple[str, ...], ...] = (
    ("task", "model"),
    ("task", "optimizer"),
    ("managers", "data"),
    ("callbacks", "x"),
    ("user", "deep"),
)


class Runs:
    """An object whose pickle runs a command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch made",)


@pytest.fixture(autouse=True)
def _nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_a_checkpoint_that_names_a_harmful_target_is_refused(tmp_path: Path, place: tuple[str, ...]) -> None:
    config = compose("+user={}")
    above = config
    for name in place[:-1]:
        above = above[name]
    above[place[-1]] = HARMFUL
    path = tmp_path / "run" / "checkpoints" / "best.ckpt"
    path.parent.parent.mkdir()
    save_checkpoint_file(path, {"run": {"config": config}, "state_dict": {}})

    with pytest.raises(ConfigError, match=rf"{'.'.join(place)}\._target_: 'os\.system' may not be called"):
        evaluate(path)


def test_a_checkpoint_with_an_object_in_it_is_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "run": Runs()}, tmp_path / "x.ckpt")

    with pytest.raises(CheckpointError, match="holds more than tensors and plain containers"):
        load_checkpoint_file(tmp_path / "x.ckpt")


RECORDS = (
    {"started": "x"},
    {"history": [["starting", "soon"]]},
    {"identity": 3},
    {"key": {"pid": "x"}},
    {"outcome": 3},
)


@pytest.mark.parametrize("change", RECORDS, ids=lambda change: next(iter(change)))
def test_odd_records_are_no_reason_to_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    layout = RunLayout(tmp_path / "run")
    layout.make()
    layout.config.write_text("!!python/object/apply:os.system ['touch made']")
    good = {
        "key": {"host": "h", "boot_id": "b", "pid_namespace": "n", "pid": 1, "start_time": "1"},
        "identity": {"role": "main"},
        "parent_pid": 0,
        "started": 1.0,
        "history": [["starting", 1.0]],
        "heartbeat": None,
        "outcome": None,
    }
    layout.process_record("main", 1).write_text(json.dumps(good))
    layout.process_record("main", 2).write_text(json.dumps(good | change))

    assert ps.main([str(layout.run_dir), "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert len(shown["processes"]) == 1
    assert ps.main([str(layout.run_dir)]) == 0
    assert report.main([str(layout.run_dir)]) == 0


# Between processes of one tree payloads are pickled, and nothing else is.
PICKLED = {
    "project/common/processes/managed_process.py",
    *(f"project/sweeps/jobs/{name}.py" for name in ("composer", "job", "trial_job")),
    *(f"project/sweeps/sampling/{name}.py" for name in ("child_sampler", "sampler_child")),
}


def test_no_file_is_unpickled() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "project").rglob("*.py")}
    assert {name for name, text in texts.items() if re.search(r"\bpickle\.loads\(", text)} == PICKLED
    assert not [name for name, text in texts.items() if re.search(r"\bpickle\.load\(|joblib\.load|allow_pickle", text)]
    assert not [name for name, text in texts.items() if re.search(r"\byaml\.(load|unsafe_load|full_load)\(", text)]
    loads = [call for text in texts.values() for call in re.findall(r"\btorch\.load\(.*", text)]
    own_words = [call for call in loads if call.startswith("torch.load(PATH, ")]  # of an error that says what to do
    assert len(loads) - len(own_words) == len([call for call in loads if "weights_only=True" in call]) >= 1
    assert len(own_words) == 1
