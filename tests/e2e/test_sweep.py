import os
import subprocess

import pytest

from pipeline.store.store import Store
from pipeline.store.verify import verify
from tests.e2e import crash, sweeping
from tests.e2e.conftest import CHEAP
from tests.processes import living, wait_until


def begin(store, *overrides, until):
    """Start a sweep; return its process and its stderr when all texts in `until` are in it."""
    errors = store.parent / "stderr"
    with errors.open("w") as stderr:
        line = sweeping.command(store, *CHEAP, *overrides)
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=stderr, text=True)
    wait_until(lambda: all(text in errors.read_text() for text in until), 120, process, errors.read_text)
    return process, errors


def test_shared_stages_run_once_and_a_killed_sweep_continues(without):
    store, swept = without("export", "report"), "report.title=one,two"
    process, _ = begin(store, swept, until=["report: started"])
    crash.kill_everything(process, store)
    assert list(verify(Store(store), deep=True)) == []
    before = sweeping.artifacts(store)

    again = sweeping.run(store, *CHEAP, swept)
    assert again.exit_code == 0, again.stderr
    assert [point["state"] for point in sweeping.points(store)] == ["finished"] * 2
    counted = sweeping.count(store)
    assert sum(sweeping.started(again.stderr).values()) == counted.total() - len(before)
    assert any(name.startswith("export/") for name in before)
    assert counted.pop("report") == 2 and set(counted.values()) == {1}  # the points share all others
    after = sweeping.artifacts(store)
    assert {name: after.get(name) for name in before} == before
    assert list(verify(Store(store), deep=True)) == []

    nothing = sweeping.run(store, *CHEAP, swept)
    assert nothing.exit_code == 0
    assert not sweeping.started(nothing.stderr)
    assert "2 points (2 finished)" in nothing.stdout


REWARDS = """
def length(completions, solutions):
    return [float(len(completion)) for completion in completions]
"""


BROKEN = """
import sys

def any(completions, solutions):
    if "grpo" in sys.argv:
        raise RuntimeError("this reward is broken")
    return [0.0 for _ in completions]
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Four points for one card each on one card; the reward of every second one breaks in training alone."""
    directory = tmp_path_factory.mktemp("swept")
    (directory / "sweep_rewards.py").write_text(REWARDS)
    (directory / "sweep_broken.py").write_text(BROKEN)
    store = directory / "store"
    requested = ["layout=dp1_mp1_pp1", "sft.enabled=false", "train.steps=2", "reward.weights=[1.0]"]
    requested += ["reward.functions=[sweep_broken:any],[sweep_rewards:length]", "evaluate.sample_prompts=8,4"]
    best = ["train.validate_every=1", "train.validation_prompts=8", "train.keep_best=true"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)
        return store, sweeping.run(store, *CHEAP, *requested, *best, cards=1)


@pytest.mark.long  # in the default suite, without training: tests/pipeline/test_sweep.py
def test_a_failed_point_stops_no_further_point_and_points_share_cards(swept):
    store, done = swept
    assert done.exit_code == 1
    results = sweeping.points(store)
    assert [point["state"] for point in results] == ["failed", "finished"] * 2, done.stderr
    assert results[0]["message"].startswith("stage grpo failed") and "this reward is broken" in done.stderr
    assert results[0]["artifacts"]["split"] == results[1]["artifacts"]["split"]
    counted = sweeping.count(store)
    assert [counted[stage] for stage in ("grpo", "evaluate", "report")] == [1, 2, 2]
    assert sweeping.busiest(store) == 1


def test_signal_ends_all_points_without_tracebacks(without):
    store = without("evaluate")
    both = ["[0] evaluate: started", "[1] evaluate: started"]
    process, errors = begin(store, "evaluate.sample_prompts=8,4", "cards=2", until=both)
    process.terminate()
    assert process.wait(timeout=30) == 143
    wait_until(
        lambda: not living(store) and "repeat the command to resume" in errors.read_text(),
        describe=lambda: f"{living(store)} {errors.read_text()}",
    )
    assert "Traceback" not in errors.read_text()
