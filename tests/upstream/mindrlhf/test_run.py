"""The way from fetch to report through mindrlhf itself: run, killed, and with what can go wrong."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from stages.weights.tensors import load
from tests.e2e.outside import artifact, result, rows
from tests.processes import living
from tests.stages.grpo.test_trackers import events
from tests.upstream.mindrlhf.runs import STEPS

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]


def check_finished(store, updates=2):
    """Check the outputs of a run: metrics of each step, completions, event files, changed weights."""
    steps = rows(store, "grpo")
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
    for row in steps:
        assert all(math.isfinite(value) for value in row.values())
        assert row["overflow"] == 0 and row["updates"] == updates  # 16 samples, 8 a pack, a pack an update
    assert any(row["reward_min"] < row["reward_max"] for row in steps)
    if result(store, "grpo")["contract"] == "e8a8fc1":  # the older one does not log it
        assert all(row["grad_norm"] > 0 for row in steps)
    requested = rows(store, "grpo", "completions.jsonl")
    assert {row["step"] for row in requested} == set(range(1, STEPS + 1))
    assert any("\\boxed{" in row["completion"] for row in requested)
    (board,) = (artifact(store, "grpo") / "tensorboard").glob("*.tfevents.*")
    values = [value for event in events(board.read_bytes()) for value in event.summary.value]
    assert [value.simple_value for value in values if value.tag == "loss"] == pytest.approx(
        [row["loss"] for row in steps]
    )
    before, after = load(artifact(store, "fetch")), load(artifact(store, "export"))
    assert before.keys() == after.keys()
    changed = [name for name in before if not np.array_equal(before[name], after[name])]
    assert len(changed) == len(before), "an update moves every tensor"
    assert not living(store)


@pytest.mark.core
def test_the_older_commit_goes_from_fetch_to_report(older):
    check_finished(older.store)
    assert result(older.store, "grpo")["contract"] == "0cd087455"
    assert 0 <= float(older.done.result["accuracy_grpo"]) <= 1
    assert Path(older.done.result["report"]).read_text().startswith("<!DOCTYPE html>")


@pytest.mark.core
def test_a_killed_run_goes_on_from_its_last_checkpoint(killed):
    left = killed.left / "checkpoints"
    for part in ("train", "optimizer", "ref"):
        assert json.loads((left / part / "rank_0" / "meta.json").read_text())["last_step"] == 2
    assert "--resume_training" in killed.after or "resume_training=True" in killed.after
    assert "epoch: 0, step: 1 start" not in killed.after
    assert "epoch: 0, step: 2 start" in killed.after
    output = result(killed.store, "grpo")
    assert (output["resumed_from"], output["checkpoint"], output["contract"]) == ([0, 2], "1_3", "e8a8fc1")
    check_finished(killed.store)


@pytest.mark.core
def test_the_optimizer_goes_on_too(killed):
    """The learning rate falls by the optimizer's own count of updates, which its checkpoint holds."""
    rates = [row["lr"] for row in rows(killed.store, "grpo")]  # of the last of a step's two updates
    peak, last, updates = 1e-4, 1e-4 * 2e-4, 6
    cosine = [(1 + math.cos(math.pi * done / updates)) / 2 for done in (1, 3, 5)]
    assert rates == pytest.approx([last + (peak - last) * share for share in cosine], rel=1e-4)
