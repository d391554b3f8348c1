"""What Hydra's own sweeper writes of a sweep holds no secret."""

from pathlib import Path

import yaml

from project.sweeps.jobs.batch import mask_written_config


def test_the_configuration_of_a_sweep_is_written_without_secrets(tmp_path: Path) -> None:
    typed = ["+user.api_key=hidden-key", "seed=1,2", "user.db=postgresql://me:hidden-word@host/db"]
    config = {
        "seed": 1,
        "user": {"api_key": "hidden-key", "db": "postgresql://me:hidden-word@host/db"},
        "hydra": {
            "overrides": {"task": typed, "hydra": ["hydra.mode=MULTIRUN"]},
            "job": {"override_dirname": typed[0]},
        },
    }
    (tmp_path / "multirun.yaml").write_text(yaml.safe_dump(config))

    mask_written_config(tmp_path)

    text = (tmp_path / "multirun.yaml").read_text()
    kept = yaml.safe_load(text)
    assert "hidden" not in text
    assert kept["seed"] == 1
    assert kept["hydra"]["overrides"]["task"] == [
        "+user.api_key=***",
        "seed=1,2",
        "user.db=postgresql://me:***@host/db",
    ]
