"""What is shown and kept of a training."""

from pathlib import Path

from project.training.loggers import write_csv
from project.training.report import table_rows
from project.training.rng import mix


def test_a_history_becomes_a_table_of_steps(tmp_path: Path) -> None:
    history = tmp_path / "metrics.jsonl"
    history.write_text(
        '{"step": 2, "epoch": 0, "time": 1, "b": 2}\n{"step": 1, "epoch": 0, "time": 0, "a": 1}\n{"step": 2, '
    )

    write_csv(history, tmp_path / "metrics.csv")

    assert (tmp_path / "metrics.csv").read_text() == "step,epoch,time,b,a\n1,0,0,,1\n2,0,1,2,\n"


def test_the_final_table_has_a_row_for_the_model_and_one_for_each_baseline() -> None:
    rows = table_rows({"val/acc": 0.5, "test/loss": 2.0, "words/val/acc": 0.4, "seconds": 3.0}, name="Model")

    assert rows == [
        {"model": "Model", "val/acc": 0.5, "test/loss": 2.0, "seconds": 3.0},
        {"model": "words", "val/acc": 0.4},
    ]


def test_neighbouring_numbers_give_unrelated_seeds() -> None:
    seeds = {
        mix(seed, rank, epoch, batch)
        for seed in range(5)
        for rank in range(5)
        for epoch in range(5)
        for batch in range(5)
    }

    assert len(seeds) == 625
    assert mix(1, 0) != mix(0, 1)
    assert all(0 <= seed < 2**63 for seed in seeds)
