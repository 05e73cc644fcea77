import json
import sys
from pathlib import Path

import pytest

from pipeline.store import history
from tests.e2e import crash, sweeping
from tests.e2e.conftest import CHEAP, damage, finish
from tests.processes import living, wait_until

PROGRAM = str(Path(sys.executable).parent / "grpoflow")


def new_runs(store, before):
    """Return the runs of a store that were not there before."""
    return [run for name, run in history.runs(store).items() if name not in before]


def test_shared_stages_run_once_and_a_killed_sweep_continues(without):
    store, swept = without("export", "report"), "report.title=one,two"
    process = crash.start(store, "report", line=sweeping.command(store, *CHEAP, swept))
    crash.kill_everything(process, store)
    assert damage(store) == []
    before = sweeping.artifacts(store)

    again = sweeping.run(store, *CHEAP, swept)
    assert [point["state"] for point in sweeping.points(store)] == ["finished"] * 2
    counted = sweeping.count(store)
    assert len(again.started) == counted.total() - len(before)
    assert any(name.startswith("export/") for name in before)
    assert counted.pop("report") == 2 and set(counted.values()) == {1}  # the points share all others
    after = sweeping.artifacts(store)
    assert {name: after.get(name) for name in before} == before
    assert damage(store) == []

    nothing = sweeping.run(store, *CHEAP, swept)
    assert not nothing.started
    assert "2 points (2 finished)" in nothing.stdout


def test_signal_ends_all_points_without_tracebacks(without):
    store = without("evaluate")
    errors = store.parent / "stderr"
    cheap = [override for override in CHEAP if not override.startswith("evaluate.sample_prompts=")]
    line, before = (
        sweeping.command(store, *cheap, "evaluate.sample_prompts=8,4", "cards=2"),
        history.runs(store),
    )
    process = crash.start(store, "[0] evaluate", "[1] evaluate", line=line)
    process.terminate()
    assert process.wait(timeout=30) == 143
    wait_until(
        lambda: not living(store) and "repeat the command to resume" in errors.read_text(),
        describe=lambda: f"{living(store)} {errors.read_text()}",
    )
    assert "Traceback" not in errors.read_text()
    assert [(run.state, run.failed_stage) for run in new_runs(store, before)] == [
        ("interrupted", "evaluate")
    ] * 2


def test_points_that_waited_when_the_sweep_was_interrupted_are_told_so(without):
    store = without("evaluate")
    cheap = [override for override in CHEAP if not override.startswith("evaluate.sample_prompts=")]
    swept = "evaluate.sample_prompts=8,7,6,5,4"
    line, before = sweeping.command(store, *cheap, swept), history.runs(store)
    process = crash.start(store, "evaluate", line=line)
    process.terminate()
    assert process.wait(timeout=30) == 143
    ended = new_runs(store, before)
    assert [run.state for run in ended] == ["interrupted"] * 5
    assert any("interrupted before it began a stage" in run.message for run in ended)


@pytest.mark.long
def test_a_training_that_falls_behind_ends_with_a_checkpoint_and_can_be_resumed(tmp_path):
    store, words = tmp_path / "store", sweeping.falling_behind(tmp_path)
    done = sweeping.run(store, *words)
    good, bad = sweeping.points(store)
    assert good["state"] == "finished", done.stderr
    saved = sweeping.stopped_after(store, bad)
    assert sweeping.count(store)["grpo"] == sweeping.count(store)["report"] == 1
    assert "[1] grpo: stopped early at rung 1" in done.stderr and "error: " not in done.stderr

    resumed = finish([PROGRAM, "run", *bad["overrides"], "--until", "grpo"], tmp_path, code=0)
    assert resumed.started == ["grpo"]
    result = json.loads((store / bad["artifacts"]["grpo"] / "result.json").read_text())
    assert (result["steps"], result["resumed_from"]) == (4, saved)
