"""GRPO by the real AReaL improves a model that a run of engine=local has trained until sft."""

import json
import re

import pytest

from tests.upstream.verl.product import grpoflow, warm_start

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(5400)]
STEPS, GAIN = 16, 0.1


@pytest.mark.parametrize("mode", [("engine.mode=sync",), ("engine.mode=async", "engine.staleness=2")])
def test_a_warm_start_gains_accuracy(interpreter, tmp_path, mode):
    store = tmp_path / "store"
    start = warm_start(tmp_path, store)
    overrides = ["engine=areal", "engine.device=cpu", f"engine.python={interpreter('areal')}"]
    overrides += [f"model.path={start}", f"train.steps={STEPS}", "train.warmup_steps=0", f"store={store}"]
    done = grpoflow(tmp_path, "run", *overrides, *mode)
    assert done.returncode == 0, done.stderr[-3000:]
    (metrics,) = store.glob("grpo/*/metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    print(*mode, "tokens per second:", sum(row["tokens_per_s"] for row in rows) / len(rows))
    gain = re.search(r"^result .*gain=(\S+)", done.stdout, re.MULTILINE)
    assert float(gain[1]) >= GAIN
