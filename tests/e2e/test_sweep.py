import json
import sys
from pathlib import Path

from tests.e2e import crash, sweeping
from tests.e2e.conftest import CHEAP, damage, finish
from tests.processes import living, wait_until

PROGRAM = str(Path(sys.executable).parent / "grpoflow")


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
    line = sweeping.command(store, *cheap, "evaluate.sample_prompts=8,4", "cards=2")
    process = crash.start(store, "[0] evaluate", "[1] evaluate", line=line)
    process.terminate()
    assert process.wait(timeout=30) == 143
    wait_until(
        lambda: not living(store) and "repeat the command to resume" in errors.read_text(),
        describe=lambda: f"{living(store)} {errors.read_text()}",
    )
    assert "Traceback" not in errors.read_text()


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
