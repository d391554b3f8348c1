"""One self-contained page on a sweep: what was found, what failed, how the parameters matter, which trial ran when."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from project.common.files.atomic import atomic_file
from project.common.pages.html import page
from project.common.pages.plots import plot_sections
from project.sweeps.shown import report_page
from project.sweeps.shown.report_figures import optuna_plots
from project.sweeps.shown.report_timeline import timeline
from project.sweeps.shown.stored_study import stored_study
from project.sweeps.shown.summary import summarize

if TYPE_CHECKING:
    from optuna import Study

REPORT_FILE = "report.html"


def write_report(sweep_dir: Path, out: Path | None = None) -> Path:
    """Writes the page and returns its path; the study is only read, also while the sweep runs.

    Args:
        out: None for `report.html` in the sweep's folder.

    Raises:
        ConfigError: There is no sweep.
    """
    _quieten()
    path = sweep_dir / REPORT_FILE if out is None else out
    with stored_study(sweep_dir) as (study, place):
        html = report_html(study, sweep_dir, storage=place.shown, page_dir=path.absolute().parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path, mode="wb", durable=False) as file:
        file.write(html.encode("utf-8", "backslashreplace"))
    return path


def report_html(study: "Study", sweep_dir: Path, *, storage: str, page_dir: Path) -> str:
    """The page.

    Args:
        storage: The address, masked.
        page_dir: Where the page will lie; its links are relative to it.
    """
    from plotly.offline import get_plotlyjs

    now = datetime.now()
    summary = summarize(study, sweep_dir.absolute())
    sections = [
        report_page.header(summary, storage=storage, now=now),
        report_page.best_section(summary, page_dir=page_dir),
        report_page.failures_section(summary, page_dir=page_dir),
        *plot_sections([timeline(summary, now), *optuna_plots(study, summary)]),
        report_page.trials_section(summary, page_dir=page_dir),
    ]
    return page(f"{summary.study} · sweep", sections, library=get_plotlyjs())


def _quieten() -> None:
    """What Optuna warns of while it draws is said on the page, or of no use to its reader."""
    import warnings

    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", category=UserWarning, module="optuna")
