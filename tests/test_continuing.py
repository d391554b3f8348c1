"""A run that was killed goes on, by the same call, as if nothing had happened."""

from pathlib import Path

import pytest

from project.common.files.checkpoint_file import load_checkpoint_file
from project.training.launch import run
from tests.helpers.training import equal, tiny_config, with_probe

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(
    ("overrides", "probe"),
    [
        (["loader.num_workers=0"], "step=13,do=kill"),
        (["loader.num_workers=2"], "step=13,do=kill"),
        (["trainer.devices=2"], "rank=1,step=7,do=segv"),
    ],
    ids=["alone", "with workers", "two ranks"],
)
def test_a_run_killed_within_an_epoch_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str], probe: str
) -> None:
    monkeypatch.setenv("PROJECT_ALLOW", "tests.helpers.*")
    config = with_probe(
        tiny_config(tmp_path, "logger=none", "callbacks.checkpoint.every_n_steps=1", *overrides), "batch_end"
    )
    whole, whole_result = run(config | {"paths": config["paths"], "resume": "never"})
    assert whole_result is not None
    monkeypatch.setenv("PROBE", probe)
    crashed, _ = run(config | {"resume": "never"})
    monkeypatch.delenv("PROBE")

    resumed, result = run(config)

    assert (whole.exit_code, crashed.exit_code, resumed.exit_code) == (0, 1, 0)
    assert result is not None
    assert result["last_checkpoint"] != whole_result["last_checkpoint"]
    assert result["metrics"] == whole_result["metrics"]
    one, other = (load_checkpoint_file(Path(r["last_checkpoint"])) for r in (result, whole_result))
    for key in ("state_dict", "optimizer_states", "lr_schedulers", "global_step"):
        assert equal(one[key], other[key]), key
