"""Long runs hold no more at their end than at their beginning, and workers share what they read."""

from pathlib import Path

import pytest

from tests.helpers.memory import read_notes
from tests.helpers.runs import run_folder, started, tiny

N_EPOCHS = 200
# Allocators give memory back late, and pages that are shared with the server become private when they are touched.
MOST_MB = 6.0


@pytest.mark.case("40")
@pytest.mark.slow
@pytest.mark.timeout(480)
@pytest.mark.parametrize("persistent", ["true", "false"], ids=["workers live on", "workers are started anew"])
def test_memory_and_handles_stay_flat_over_200_epochs(
    tmp_path: Path, persistent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = "+callbacks.notes._target_=tests.helpers.memory.MemoryNotes"
    command = tiny(
        tmp_path,
        "trainer=ddp",
        "loader.num_workers=1",
        f"loader.persistent_workers={persistent}",
        f"trainer.max_epochs={N_EPOCHS}",
        "callbacks.checkpoint.every_n_steps=50",
        notes,
        "+callbacks.notes.every=20",
    )
    with started(command, tmp_path) as tree:
        assert tree.wait(420) == 0, tree.text
        tree.assert_nothing_left()

    noted = {note["epoch"]: note for note in read_notes(run_folder(tmp_path).run_dir)}
    middle, last = noted[N_EPOCHS // 2], noted[N_EPOCHS]
    with capsys.disabled():
        print()
        for label, now in sorted(last["held"].items()):
            then = middle["held"].get(label, now)
            print(
                f"  {label}: {then['uss']:.1f} -> {now['uss']:.1f} MB, {then['files']} -> {now['files']} descriptors, "
                f"{then['threads']} -> {now['threads']} threads, epochs {middle['epoch']} -> {last['epoch']}"
            )
    expected = {"main", "server", "trial", "rank0", "rank1"}
    assert expected <= last["held"].keys() & middle["held"].keys()
    for label in last["held"].keys() & middle["held"].keys():
        then, now = middle["held"][label], last["held"][label]
        assert now["uss"] - then["uss"] < MOST_MB, label
        if "worker" not in label or persistent == "true":
            assert (now["files"], now["threads"]) == (then["files"], then["threads"]), label
    assert last["shm"] == middle["shm"]
