"""The report of a run: whole for every folder, nothing unescaped, nothing secret, drawn without an error."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from plotly.offline import get_plotlyjs
from pyarrow import parquet

from project import report
from project.common.errors import ConfigError
from project.common.files.layout import RunLayout
from project.common.process_registry import ProcessRecord
from project.common.processes.identity import Identity, ProcessKey, Role
from project.training.run_report.writing import write_run_report
from tests.helpers.browser import CHROMIUM, open_page
from tests.helpers.needs import miss

ODD = "</script><script>fail()</script><b class='bold'>x</b>&amp;"
MARKUP = "<b class='bold'>"
RECORD = ProcessRecord(
    key=ProcessKey(host="x", boot_id="x", pid_namespace="x", pid=1, start_time="1"),
    identity=Identity(role=Role.MAIN),
    parent_pid=0,
    started=1.0,
    history=[("starting", 1.0), (ODD, 2.0), ("ended", 3.0)],
).as_dict()


def make_run(run_dir: Path, **files: Any) -> RunLayout:
    """A run's folder as somebody may have made it, its files' texts by their names in the layout."""
    layout = RunLayout(run_dir)
    layout.make()
    texts = {
        "config": f"name: {json.dumps(ODD)}\nobjective: {{metric: val/acc, mode: max}}\ntags: [{json.dumps(ODD)}]\n"
    }
    for name, text in (texts | files).items():
        path = layout.process_record("main", 1) if name == "main_record" else getattr(layout, name)
        path.write_text(text if isinstance(text, str) else json.dumps(text))
    return layout


def full_run(run_dir: Path) -> RunLayout:
    """One of which everything is there, and each text odd."""
    rows = [{"model": ODD, "val/acc": 0.9, "test/acc": 0.8}, {"model": "majority", "val/acc": 0.1, "test/acc": 0.2}]
    outcome = {
        "status": "failed",
        "cause": ODD,
        "result": {"rows": rows},
        "versions": {ODD: ODD},
        "command": ["train.py", ODD],
        "seconds": 3.0,
    }
    lines = [{"step": n, "train/loss_step": 1 / (n + 1), "val/acc": n / 10, f"x/{ODD}": n} for n in range(5)]
    layout = make_run(
        run_dir,
        outcome=json.dumps(outcome),
        metrics_history="".join(json.dumps(line) + "\n" for line in lines),
        overrides=json.dumps([f"a={ODD}"]),
        sample=ODD,
        run_log=f"2026-01-01 10:00:00,000 WARNING rank0 1 x: {ODD}\n2026-01-01 10:00:00,000 INFO rank0 1 x: calm\n",
        timeline_picture=ODD,
        main_record=RECORD,
    )
    labels = ["a", "b", ODD, "a"]
    columns = {
        "text": [ODD] * 4,
        "label": labels,
        "prediction": ["a", ODD, "b", "a"],
        "probabilities": [[0.2, 0.8]] * 4,
    }
    table = pa.table(columns).replace_schema_metadata({"split": "test"})
    parquet.write_table(table, layout.predictions)
    return layout


@pytest.mark.slow
def test_a_browser_draws_the_page_without_an_error(tmp_path: Path) -> None:
    if CHROMIUM is None:
        miss("Chromium", package="chromium")
    layout = full_run(tmp_path / "run")

    seen = open_page(write_run_report(layout.run_dir), tmp_path / "profile")

    assert seen.console == []
    assert seen.count("js-plotly-plot") == 5, "beside the baselines, three curves, the confusion matrix"
    assert seen.count("bold") == 0
    assert "<h2>Processes</h2>" in seen.dom


def test_everything_of_a_run_is_on_one_page_and_escaped(tmp_path: Path) -> None:
    html = write_run_report(full_run(tmp_path / "run").run_dir).read_text()

    own = html.replace(get_plotlyjs(), "")
    titles = re.findall("<h2>(.*?)</h2>", own)
    assert {"Metrics", "Beside the baselines", "acc", "loss", "Sample", "Processes", "Configuration"} <= set(titles)
    assert "Confusion matrix: test, 2 of 4 right" in titles
    assert "calm" not in own
    assert MARKUP not in own
    assert "fail()</script>" not in own
    assert not re.findall(r"""(?:src|href)=["'](?!data:)(?:\w+:|//)""", own)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config", "[1, 2"),
        ("config", "!!python/object/apply:os.system ['touch made']"),
        ("config", "name: {a: 1}\nobjective: 3\ntags: 5\nnotes: [1]"),
        ("outcome", "[1]"),
        ("outcome", '{"result": 3, "versions": 4, "command": "x", "seconds": "y", "status": {}}'),
        ("outcome", '{"result": {"rows": [1, {"model": [1], "val/acc": "high"}, {"val/acc": NaN}]}}'),
        ("outcome", "[" * 100_000),
        ("metrics_history", '{"step": "x", "a": 1}\n{"step": 1, "a": [2], "b": "NaN"}\n{"step": null, "c": 1}\n'),
        ("predictions", "no parquet"),
        ("confusion", "[" * 100_000),
        ("confusion", '{"split": 1, "labels": ["a"], "counts": [[1, 2]]}'),
        ("confusion", '{"split": 1, "labels": [], "counts": []}'),
        ("overrides", "a: 1"),
        ("main_record", RECORD | {"started": 1e300}),
        ("main_record", RECORD | {"started": "x"}),
        ("main_record", RECORD | {"history": [["starting", "x"], ["ended", 1.0]]}),
    ],
)
def test_odd_content_is_data_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    layout = make_run(tmp_path / "run", **{name: text})

    html = write_run_report(layout.run_dir).read_text()

    assert "<h2>Environment</h2>" in html
    assert not (tmp_path / "made").exists()


def test_a_run_without_an_end_says_so(tmp_path: Path) -> None:
    html = write_run_report(make_run(tmp_path / "run").run_dir).read_text()

    assert ">killed</span>" in html
    assert "There is no final value." in html


def test_what_the_training_counted_is_shown_and_how_the_mistakes_are_told(tmp_path: Path) -> None:
    counts = {"split": "test", "labels": ["a", "b"], "counts": [[3, 1], [0, 2]]}

    html = write_run_report(make_run(tmp_path / "run", confusion=json.dumps(counts)).run_dir).read_text()

    assert "<h2>Confusion matrix: test, 5 of 6 right</h2>" in html
    assert f"python eval.py ckpt={tmp_path / 'run'} split=test" in html


def test_secrets_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "not-for-eyes")
    config = "user:\n  api_key: hidden-one\n  place: not-for-eyes\n  url: postgresql://me:hidden-two@host/db\n"
    outcome = json.dumps({"status": "failed", "cause": "not-for-eyes", "command": ["x", "user.password=hidden-three"]})
    layout = make_run(tmp_path / "run", config=config, outcome=outcome, overrides='["+user.token=hidden-four"]')

    html = write_run_report(layout.run_dir).read_text()

    for text in ("not-for-eyes", "hidden-one", "hidden-two", "hidden-three", "hidden-four"):
        assert text not in html
    assert "api_key: ***" in html


def test_the_command_tells_a_run_from_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = make_run(tmp_path / "run")

    assert report.main([str(layout.run_dir), "--out", str(tmp_path / "x" / "page.html")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'x' / 'page.html'}\n"
    assert '<a href="../run/config.yaml">' in (tmp_path / "x" / "page.html").read_text()
    assert report.main([str(tmp_path)]) == 2
    assert "is it a sweep's?" in capsys.readouterr().err


def test_a_folder_of_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is no run's folder; name one such as runs/<name>/<time>-<id>"):
        write_run_report(tmp_path)
