import json
import subprocess
import sys
import time

import pytest

from pipeline.store import history, leases
from pipeline.store.store import Key, Store
from pipeline.ui.watch import choose, rows
from tests.pipeline.artifacts import commit

DIGITS = "0123456789abcdef"
STAGES = ("fetch", "sft", "grpo", "report")
RUN = "20260101-000000-aaaa"


def lines(file, *values):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(value) + "\n" for value in values))


def start(store, run=RUN):
    store.mkdir(exist_ok=True)
    artifacts = {stage: f"{stage}/{DIGITS}" for stage in STAGES}
    history.record(store, run, "started", overrides=[], config={}, artifacts=artifacts)


def made(store, stage, ended, metrics=""):
    files = {"result.json": "{}", "metrics.jsonl": metrics}
    commit(Store(store), Key(stage, DIGITS * 4), files, started=ended - 8, ended=ended)


def training(store):
    """Write an attempt at grpo in step 5 of 25; each step took 2 s, except one with a checkpoint."""
    now = time.time()
    work = store / ".work" / f"grpo-{DIGITS}"
    whens = (now - 67, now - 65, now - 63, now - 2, now)
    metrics = [
        {"step": i, "time_s": when, "reward": i / 10, "accuracy": i / 20, "tokens_per_s": 3300.4}
        for i, when in enumerate(whens, 1)
    ]
    lines(work / "metrics.jsonl", *metrics)
    logs = store / ".logs" / f"grpo-{DIGITS}"
    values = {"time_s": now, "step": 5, "total": 25, "unit": "step", "message": "reward 0.500, length 9.1"}
    lines(logs / "progress.jsonl", values)
    (logs / "spec.json").write_text("{}")


@pytest.fixture
def training_lock(store):
    """The held lock of the running grpo attempt."""
    lock = leases.locked(store / ".locks" / f"grpo-{DIGITS}.attempt.lock", store).__enter__()
    yield lock
    lock.release()


@pytest.fixture
def store(tmp_path):
    """A running run: fetch was cached, sft is done, grpo is running."""
    root = tmp_path / "store"
    made(root, "fetch", time.time() - 500)
    start(root)
    made(root, "sft", time.time() + 1, '{"step": 1, "accuracy_check": 0.25}\n{"step": 2}\n')
    training(root)
    return root


def test_the_stages_of_a_running_run(store, training_lock):
    held = leases.take(store, RUN)
    fetch, sft, grpo, report = rows(store, choose(store, None))
    assert (fetch.state, sft.state, grpo.state, report.state) == ("cached", "done", "running", "waiting")
    assert (fetch.took, sft.accuracy, sft.reward) == ("8.0 s", "25.0 %", "")
    assert (grpo.step, grpo.reward, grpo.accuracy, grpo.speed) == ("5/25 step", "0.500", "25.0 %", "3,300")
    assert grpo.left.endswith(" s")
    assert 37 < float(grpo.left[:-2]) <= 40, "20 steps of 2 s, whatever the checkpoint took"
    held.release()


def test_a_run_with_a_running_stage_is_preferred(store, training_lock):
    """All runs of a sweep start together, but not all have a running stage."""
    history.record(store, "20260103-000000-cccc", "started", overrides=[], config={},
                   artifacts={"grpo": "grpo/fedcba9876543210"})  # fmt: skip
    held = [leases.take(store, run) for run in (RUN, "20260103-000000-cccc")]
    assert choose(store, None).id == RUN
    training_lock.release()
    assert choose(store, None).id == "20260103-000000-cccc"
    for lease in held:
        lease.release()


def test_watch_follows_a_run_to_its_end(store, training_lock):
    held = leases.take(store, RUN)
    line = [sys.executable, "-m", "pipeline.cli", "watch", f"store={store}"]
    process = subprocess.Popen(line, text=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("grpo: 5/25 step, reward 0.500")
    history.record(store, RUN, "failed", stage="grpo", message="exit code 1")
    remaining = process.communicate(timeout=30)[0]
    held.release()
    assert process.returncode == 1
    assert f"run {RUN}: failed" in remaining and "grpo: exit code 1" in remaining
