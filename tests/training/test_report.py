"""What a run prints last."""

from pathlib import Path

import pytest

from project.common.files.layout import RunLayout
from project.common.processes.outcome import Outcome, Status
from project.training.report import print_end


@pytest.mark.parametrize(("resume", "way"), [("auto", "the same command"), ("never", "resume={run_dir}")])
def test_says_what_goes_on_from_the_last_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], resume: str, way: str
) -> None:
    """With `resume=never`, as under `debug`, the same command would start anew."""
    layout = RunLayout(tmp_path)
    layout.checkpoint("last").parent.mkdir()
    layout.checkpoint("last").touch()

    print_end(Outcome(status=Status.INTERRUPTED, exit_code=130, cause="SIGINT"), None, layout=layout, resume=resume)

    assert f"; {way.format(run_dir=tmp_path)} goes on from it" in capsys.readouterr().err
