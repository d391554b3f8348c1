"""What the process server has ready for every job of a sweep, and what a job does not send back for nothing."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf

from project.sweeps.jobs import trial_job
from tests.helpers.distribution import ROOT

# Run on its own, as in a new server: what another test has read or imported would count.
LEARNT = """
import json, sys
from project.sweeps import hydra_ready
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from omegaconf import OmegaConf
from omegaconf.grammar.gen.OmegaConfGrammarParser import OmegaConfGrammarParser

def learnt():
    return sum(len(dfa.states) for dfa in OmegaConfGrammarParser.decisionsToDFA)

before = learnt()
config = OmegaConf.create({"paths": {"dir": "d"}, "task": {"name": "n"}, "name": "${task.name}"})
config.folder = "${paths.dir}/${name}"
assert OmegaConf.to_container(config, resolve=True)["folder"] == "d/n"
print(json.dumps({
    "newly_learnt": learnt() - before,
    "launch": "project.training.launch" in sys.modules,
    "sweep_trial": "project.training.sweep_trial" in sys.modules,
    "plugins": Plugins in Singleton._instances,
    "torch": "torch" in sys.modules,
}))
"""


def test_a_server_has_read_the_grammar_found_the_plugins_and_imported_what_each_job_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEARNT], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    assert json.loads(done.stdout) == {
        "newly_learnt": 0,
        "launch": True,
        "sweep_trial": True,
        "plugins": True,
        "torch": False,
    }


@pytest.mark.parametrize("wanted", [True, False])
def test_configurations_go_back_only_where_they_are_wanted(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    returned = JobReturn(cfg=OmegaConf.create({"a": 1}), hydra_cfg=OmegaConf.create({"b": 2}))
    returned.status, returned.return_value = JobStatus.COMPLETED, np.float64(0.5)  # which only some callers want plain
    sent: list[bytes] = []
    monkeypatch.setattr(trial_job, "run_job", lambda **_: returned)
    monkeypatch.setattr(trial_job, "_set_singletons", lambda state: None)
    monkeypatch.setattr(trial_job.parent_link, "send", lambda kind, data: sent.append(data))

    trial_job.run_job_process(pickle.dumps(({}, None, print, wanted)), pickle.dumps(None))

    arrived = pickle.loads(sent[0])
    assert arrived.return_value == 0.5
    assert type(arrived.return_value) is (np.float64 if wanted else float)
    assert (arrived.cfg == {"a": 1}, arrived.hydra_cfg == {"b": 2}) == (wanted, wanted)
