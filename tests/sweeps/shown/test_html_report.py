"""The report: whole for every study, nothing unescaped, nothing secret, drawn by a real browser without an error."""

import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from plotly.offline import get_plotlyjs

from project import report
from project.sweeps.shown.html_report import write_report
from project.sweeps.shown.shown_study import few_trials, shown_copy
from tests.helpers.browser import CHROMIUM, open_page
from tests.helpers.needs import miss
from tests.helpers.packages import ROOT
from tests.helpers.studies import add, new_study

ODD = "</script><b class='bold'>x</b>&amp;"
ODD_CHOICES = {
    "odd": CategoricalDistribution([ODD, "größe", '"q"', "[1, 2]", None, "y" * 50 + "1", "y" * 50 + "2"]),
    "flag": CategoricalDistribution([True, False]),
    "lr": FloatDistribution(1e-5, 1.0, log=True),
    "fixed": FloatDistribution(2.0, 2.0),
}
N_PLOTS = 7  # with one objective: when, history, importance, parallel, slices, contour, on the way


def fill(study: optuna.Study, sweep_dir: Path, n_trials: int = 12) -> None:
    """Trials with odd parameters, a few of which failed or were pruned."""
    for number in range(n_trials):
        choices = ODD_CHOICES["odd"].choices
        params = {
            "odd": choices[number % len(choices)],
            "flag": number % 3 == 0,
            "lr": 10 ** -(number % 5),
            "fixed": 2.0,
        }
        facts = {"params": params, "distributions": ODD_CHOICES}
        if number % 4 == 3:
            add(study, sweep_dir, "FAIL", end={"cause": f"RuntimeError: {ODD}"}, **facts)
        elif number % 4 == 2 and len(study.directions) == 1:
            add(study, sweep_dir, "PRUNED", intermediate={1: math.nan, 2: 0.1}, **facts)
        else:
            values = [math.sin(number), number / 10][: len(study.directions)]
            intermediate = {1: 0.1, 2: math.nan, 3: math.inf} if len(values) == 1 else {}
            add(study, sweep_dir, values=values, intermediate=intermediate, **facts)


def one_trial(sweep_dir: Path) -> None:
    add(new_study(sweep_dir), sweep_dir, values=[0.5])


def only_failures(sweep_dir: Path) -> None:
    study = new_study(sweep_dir)
    for _ in range(3):
        add(study, sweep_dir, "FAIL", end={"cause": "boom"})


def constant(sweep_dir: Path) -> None:
    study = new_study(sweep_dir)
    for value in (0.1, 0.2, 0.3):
        add(study, sweep_dir, values=[value], params={"fixed": 2.0}, distributions=ODD_CHOICES)


def odd(sweep_dir: Path) -> None:
    fill(new_study(sweep_dir, name=f"s {ODD}"), sweep_dir)


def two_objectives(sweep_dir: Path) -> None:
    fill(new_study(sweep_dir, directions=["maximize", "minimize"]), sweep_dir)


def unfinished(sweep_dir: Path) -> None:
    study = new_study(sweep_dir)
    add(study, sweep_dir, "RUNNING", intermediate={1: 0.5})
    add(study, sweep_dir, "WAITING", continues=0)


# How many plots are drawn; for the others the page says why there is none.
STUDIES: list[tuple[Callable[[Path], object], int]] = [
    (new_study, 0),
    (one_trial, 4),
    (only_failures, 1),
    (constant, 4),
    (odd, N_PLOTS),
    (two_objectives, 11),
    (unfinished, 2),
]


@pytest.fixture
def browser() -> None:
    """The tests that use it need one."""
    if CHROMIUM is None:
        miss("Chromium", package="chromium")


@pytest.fixture
def sweep_dir(tmp_path: Path) -> Path:
    return tmp_path / "sweeps" / "a b"


@pytest.mark.slow
@pytest.mark.usefixtures("browser")
@pytest.mark.parametrize(("make", "n_drawn"), STUDIES, ids=lambda it: getattr(it, "__name__", ""))
def test_a_browser_draws_every_plot_without_an_error(
    sweep_dir: Path, tmp_path: Path, make: Callable[[Path], object], n_drawn: int
) -> None:
    make(sweep_dir)

    seen = open_page(write_report(sweep_dir), tmp_path / "profile")

    assert seen.console == []
    assert seen.count("plotly-graph-div") == seen.count("js-plotly-plot") == n_drawn
    assert seen.count("bold") == 0
    assert "<h2>All trials</h2>" in seen.dom


@pytest.mark.slow
@pytest.mark.usefixtures("browser")
def test_the_browser_tells_of_errors(tmp_path: Path) -> None:
    """Or the test above could not fail."""
    page = tmp_path / "page.html"
    page.write_text("<script>fail()</script>")

    assert "fail is not defined" in "".join(open_page(page, tmp_path / "profile").console)


@pytest.fixture
def html(sweep_dir: Path) -> str:
    odd(sweep_dir)
    (sweep_dir / "0").mkdir()
    (sweep_dir / "0" / "timeline.svg").touch()
    return write_report(sweep_dir).read_text(encoding="utf-8")


def test_is_one_file_with_one_library(html: str) -> None:
    own = html.replace(get_plotlyjs(), "")

    assert html.count(get_plotlyjs()) == 1
    assert not re.findall(r"""(?:src|href)=["'](?!data:)(?:\w+:|//)""", own)


def test_names_the_best_trial_the_failures_and_all_trials(html: str) -> None:
    assert "<h2>Best trial: 8</h2>" in html
    assert "0.9893582466233818" in html
    assert "RuntimeError: &lt;/script&gt;" in html
    assert "3 failed" in html
    assert html.count('<td class="short" data-key="') == 12
    assert '<a href="0">0</a> <a href="0/timeline.svg">timeline</a>' in html


def test_links_lead_to_the_folders_from_where_the_page_lies(sweep_dir: Path, tmp_path: Path) -> None:
    odd(sweep_dir)
    (sweep_dir / "0").mkdir()

    page = write_report(sweep_dir, tmp_path / "else where" / "page.html")

    assert '<a href="../sweeps/a%20b/0">0</a>' in page.read_text(encoding="utf-8")


def test_says_why_there_is_no_plot(sweep_dir: Path) -> None:
    constant(sweep_dir)

    html = write_report(sweep_dir).read_text(encoding="utf-8")

    assert "needs at least two completed trials that differ in a parameter" in html
    assert "needs two parameters that vary among the completed trials" in html
    assert "no trial has reported a value on its way" in html


def test_of_very_many_trials_the_plots_with_a_line_each_show_the_best_and_the_latest(sweep_dir: Path) -> None:
    study = optuna.create_study(study_name="many", direction="maximize")
    for number in range(400):
        add(study, sweep_dir, values=[float(number == 7)])
    shown = shown_copy(study)

    few, note = few_trials(shown)

    kept = [trial.number for trial in few.trials if trial.state.name == "COMPLETE"]
    assert note == f"{len(kept)} of 400 trials: the best and the latest"
    assert 7 in kept
    assert kept[-150:] == list(range(250, 400))
    assert shown.best_trial.number == few.best_trial.number == 7


def test_secrets_are_masked(sweep_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "not-for-eyes")
    study = new_study(sweep_dir)
    choices = ["hidden-one", "hidden-two"]
    secret = {"db.password": CategoricalDistribution(choices), "url": CategoricalDistribution(["x", "to not-for-eyes"])}
    for number in range(4):
        params = {"db.password": choices[number % 2], "url": secret["url"].choices[number // 2]}
        add(study, sweep_dir, values=[number], params=params, distributions=secret, intermediate={1: 1.0})
    add(study, sweep_dir, "FAIL", end={"cause": "no login at postgresql://me:hidden-three@host/db"})

    html = write_report(sweep_dir).read_text(encoding="utf-8")

    for text in ("not-for-eyes", "hidden-one", "hidden-two", "hidden-three"):
        assert text not in html
    assert "to ***" in html


def test_the_command_says_where_the_page_is(sweep_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd(sweep_dir)

    assert report.main([str(sweep_dir)]) == 0
    assert capsys.readouterr().out == f"{sweep_dir / 'report.html'}\n"

    assert report.main([str(sweep_dir / "0")]) == 2
    assert capsys.readouterr().err == (
        f"{sweep_dir / '0'}: no such folder; name a run's, runs/<name>/…, or a sweep's, sweeps/<study>\n"
    )


def test_what_shows_a_running_sweep_imports_nothing_heavy() -> None:
    code = (
        "import sys, project.report, project.sweeps.shown.live_table, project.sweeps.shown.results\n"
        "print([name for name in ('optuna', 'plotly', 'torch', 'sqlalchemy') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "[]\n"
