"""`grpoflow watch`: the stages of a running run, and following it to its end."""

import subprocess
import sys
import time

import pytest

from pipeline.store import history, leases
from pipeline.store.attempt import attempt
from pipeline.store.store import Key, Store
from pipeline.ui.watch import choose, rows
from tests.pipeline.artifacts import commit
from tests.stages.fetch.settings import write_lines

KEYS = {stage: Key(stage, "0123456789abcdef" * 4) for stage in ("fetch", "sft", "grpo", "report")}
RUN, NEWER = "20260101-000000-aaaa", "20260103-000000-cccc"


@pytest.fixture
def store(tmp_path):
    """A running run: fetch was cached, sft is done, grpo is in step 5 of 25.

    Each step of grpo took 2 s, except one with a checkpoint.
    """
    now, store = time.time(), Store(tmp_path / "store")
    commit(store, KEYS["fetch"], {"config.json": "{}"}, started=now - 508, ended=now - 500)
    artifacts = {stage: str(key) for stage, key in KEYS.items()}
    history.record(store.root, RUN, "started", overrides=[], config={}, artifacts=artifacts)
    metrics = '{"step": 1, "accuracy_check": 0.25}\n{"step": 2}\n'
    commit(store, KEYS["sft"], {"metrics.jsonl": metrics}, started=now - 7, ended=now + 1)
    held = leases.take(store.root, RUN)
    with attempt(store, KEYS["grpo"]) as slot:
        whens = (now - 67, now - 65, now - 63, now - 2, now)
        write_lines(slot.work / "metrics.jsonl", *(
            {"step": i, "time_s": when, "reward": i / 10, "accuracy": i / 20, "tokens_per_s": 3300.4}
            for i, when in enumerate(whens, 1)
        ))  # fmt: skip
        progress = {"time_s": now, "step": 5, "total": 25, "unit": "steps", "message": "reward 0.500"}
        write_lines(slot.logs / "progress.jsonl", progress)
        (slot.logs / "spec.json").write_text("{}")
        yield store.root
    held.release()


def test_the_stages_of_a_running_run(store):
    fetch, sft, grpo, report = rows(store, choose(store, None))
    assert (fetch.state, sft.state, grpo.state, report.state) == ("cached", "done", "running", "waiting")
    assert (fetch.took, sft.accuracy, sft.reward) == ("8.0 s", "25.0 %", "")
    assert (grpo.step, grpo.reward, grpo.accuracy, grpo.speed) == ("5/25 steps", "0.500", "25.0 %", "3,300")
    assert float(grpo.left.removesuffix(" s")) <= 40, "20 steps of 2 s, whatever the checkpoint took"


def test_a_run_with_a_running_stage_is_preferred(store):
    """All runs of a sweep start together, but not all have a running stage."""
    artifacts = {"grpo": "grpo/fedcba9876543210"}
    history.record(store, NEWER, "started", overrides=[], config={}, artifacts=artifacts)
    held = leases.take(store, NEWER)
    assert choose(store, None).id == RUN
    held.release()


def test_watch_follows_a_run_to_its_end(store):
    line = [sys.executable, "-m", "pipeline.cli", "watch", f"store={store}"]
    process = subprocess.Popen(line, text=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("grpo: 5/25 steps, reward 0.500")
    history.record(store, RUN, "failed", stage="grpo", message="exit code 1")
    remaining = process.communicate(timeout=100)[0]
    assert process.returncode == 1
    assert f"run {RUN}: failed" in remaining and "grpo: exit code 1" in remaining
